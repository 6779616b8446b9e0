"""A worker ends with the training process, by whatever that ended: torch's own look comes after 5 s."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest

from hotlap.probe import workers

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="files for processes are Linux's own")

PARENT = """
import os, sys, time
from hotlap.probe.workers import end_with_parent
worker = os.fork()
if not worker:
    for _ in range(2):
        end_with_parent()
    print(os.getpid(), flush=True)
    time.sleep(600)
time.sleep(600)
"""


def test_a_worker_ends_when_its_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    file = os.pidfd_open(worker)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    ended = select.select([file], [], [], 60)[0]
    os.close(file)
    if not ended:
        os.kill(worker, signal.SIGKILL)
    assert ended


def test_a_worker_lives_as_long_as_its_parent(monkeypatch):
    """Only one thread waits, however many wrappers ask for it."""
    started = []
    monkeypatch.setattr(workers.threading.Thread, "start", lambda self: started.append(self))
    monkeypatch.setattr(workers, "_watched", set())
    workers.end_with_parent()
    workers.end_with_parent()
    assert [each.name for each in started] == ["hotlap-parent"]
    assert started[0].daemon
    os.close(started[0]._args[0])
