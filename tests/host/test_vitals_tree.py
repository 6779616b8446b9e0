from __future__ import annotations

import os
import signal

from hotlap.host.vitals import ProcessTree

PARENT = "import subprocess as s, time; s.Popen(['sleep', '600']); print('ready'); time.sleep(600)"
PARENT_ON_DEMAND = """
import signal, subprocess, time
signal.signal(signal.SIGUSR1, lambda *_: subprocess.Popen(["sleep", "600"]))
print("ready")
while True:
    time.sleep(0.05)
"""


def test_the_tree_is_the_root_and_what_it_started(spawn, eventually):
    root = spawn(PARENT)
    tree = ProcessTree(root.pid)
    members = tree.members()
    (child,) = set(members) - {root.pid}
    assert os.getpid() not in members
    os.kill(child, signal.SIGKILL)
    eventually(lambda: set(tree.running()) == {root.pid})
    assert set(tree.members()) == {root.pid, child}, "its parent has not noticed its end yet"


def test_a_child_started_between_two_looks_is_adopted(spawn, eventually):
    root = spawn(PARENT_ON_DEMAND)
    tree = ProcessTree(root.pid)
    assert set(tree.members()) == {root.pid}
    os.kill(root.pid, signal.SIGUSR1)
    eventually(lambda: len(tree.members()) == 2)


def test_an_orphan_stays_in_the_tree(spawn, eventually):
    root = spawn(PARENT)
    tree = ProcessTree(root.pid)
    (child,) = set(tree.members()) - {root.pid}
    root.kill()
    root.wait()
    try:
        assert set(tree.members()) == {child}
    finally:
        os.kill(child, signal.SIGKILL)
    eventually(lambda: not tree.running())


def test_a_root_that_is_not_there_has_no_members(spawn):
    root = spawn("print('ready')")
    root.wait()
    assert ProcessTree(root.pid).members() == {}
