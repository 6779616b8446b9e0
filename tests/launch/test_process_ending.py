from __future__ import annotations

import os
import signal
import subprocess

import psutil
import pytest

from hotlap.launch.process import Means, end_job

STUBBORN = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready")
time.sleep(600)
"""
CIVIL = """
import time
try:
    print("ready")
    time.sleep(600)
except KeyboardInterrupt:
    print("checkpoint written")
"""
ONLY_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("ready")
time.sleep(600)
"""
# A root that ends by SIGINT, and leaves a child and a grandchild behind that ignore everything but SIGKILL.
FAMILY = """
import subprocess, sys, time
stubborn = STUBBORN
middle = f"import subprocess, sys; subprocess.Popen([sys.executable, '-u', '-c', {stubborn!r}])" + stubborn
child = subprocess.Popen([sys.executable, "-u", "-c", middle], stdout=subprocess.PIPE, text=True)
child.stdout.readline(), child.stdout.readline()
try:
    print("ready")
    time.sleep(600)
except KeyboardInterrupt:
    pass
""".replace("STUBBORN", repr(STUBBORN))


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_civil_job_is_interrupted_and_may_write_its_checkpoint(spawn):
    job = spawn(CIVIL)
    end = end_job(job.pid, graces=(30, 5))
    assert (end.by, end.killed, end.left) == (Means.INTERRUPT, (), ())
    assert job.stdout.read().strip() == "checkpoint written"
    assert job.wait() == 0, "the exit code is still the caller's to collect"


def test_a_job_that_ignores_sigint_is_terminated(spawn):
    job = spawn(ONLY_SIGTERM)
    end = end_job(job.pid, graces=(0.2, 30))
    assert (end.by, end.killed) == (Means.TERMINATE, ())
    assert job.wait() == 7


def test_a_job_that_ignores_sigint_and_sigterm_is_killed_after_both_graces(spawn):
    job = spawn(STUBBORN)
    end = end_job(job.pid, graces=(0.2, 0.3))
    assert (end.by, end.killed, end.left) == (Means.KILL, (job.pid,), ())
    assert end.seconds >= 0.5
    assert job.wait() == -signal.SIGKILL


def test_stubborn_grandchildren_of_a_civil_root_are_killed(spawn):
    job = spawn(FAMILY)
    below = [process.pid for process in psutil.Process(job.pid).children(recursive=True)]
    assert len(below) == 2
    end = end_job(job.pid, graces=(2.0, 0.2))
    assert end.by is Means.INTERRUPT
    assert end.killed == tuple(sorted(below))
    assert all(is_gone(pid) for pid in below)


def test_grandchildren_of_a_killed_root_do_not_survive_it(spawn):
    deaf = "from signal import *; signal(SIGINT, SIG_IGN); signal(SIGTERM, SIG_IGN)"
    job = spawn(deaf + FAMILY)
    below = [process.pid for process in psutil.Process(job.pid).children(recursive=True)]
    end = end_job(job.pid, graces=(0.1, 0.1))
    assert end.by is Means.KILL
    assert set(end.killed) == {job.pid, *below}
    assert all(is_gone(pid) for pid in below)


def test_an_unreaped_ended_job_counts_as_ended(spawn, eventually):
    job = spawn("print('ready')")
    eventually(lambda: psutil.Process(job.pid).status() == psutil.STATUS_ZOMBIE)
    assert end_job(job.pid, graces=(30, 30)).by is Means.NONE


def test_a_job_that_is_long_gone_is_no_error():
    job = subprocess.Popen(["true"])
    job.wait()
    assert end_job(job.pid).by is Means.NONE


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGINT for other consoles")
def test_others_are_left_alone(spawn):
    job, other = spawn(CIVIL), spawn(CIVIL)
    end_job(job.pid)
    assert other.poll() is None
