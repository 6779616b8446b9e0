"""Whole jobs are held and go on; whatever happens to who holds them, nothing stays stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from hotlap.launch.holding import Guard, Hold, Turns, read_clock
from hotlap.launch.process import Means, end_job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="held only where /proc tells of threads")
SOURCE = Path(__file__).parents[2] / "src"

FAMILY = "import subprocess as s, time; s.Popen(['sleep', '600']); print('ready'); time.sleep(600)"
BREEDS = """
import signal, subprocess, time
signal.signal(signal.SIGUSR1, lambda *_: subprocess.Popen(["sleep", "600"]))
print("ready")
while True:
    time.sleep(0.01)
"""
SPINS = "print('ready')\nwhile True: pass"
HOLDER = """
import sys, time
from pathlib import Path
from hotlap.launch.holding import Turns
pid = int(sys.argv[1])
with Turns() as turns:
    hold = turns.enter(pid, Path(sys.argv[2]), 0)
    hold.hold()
    print("held", flush=True)
    time.sleep(600)
"""


def states(pid: int) -> list[str]:
    root = psutil.Process(pid)
    return [each.status() for each in (root, *root.children(recursive=True))]


def stopped(pid: int) -> bool:
    return set(states(pid)) == {psutil.STATUS_STOPPED}


def goes_on(pid: int) -> bool:
    return psutil.STATUS_STOPPED not in states(pid)


@pytest.fixture
def guard():
    made = Guard()
    yield made
    made.close()


def test_all_processes_of_a_job_are_held_and_the_pause_is_written_down(spawn, eventually, guard, tmp_path):
    job = spawn(FAMILY)
    origin = time.perf_counter_ns()
    hold = Hold(job.pid, tmp_path, origin, guard)
    hold.hold()
    eventually(lambda: stopped(job.pid))
    assert len(states(job.pid)) == 2
    before = hold.moment
    time.sleep(0.05)
    assert hold.moment == before, "its clock stands still"
    hold.release()
    eventually(lambda: goes_on(job.pid))
    elapsed = time.perf_counter_ns() - origin
    assert read_clock(tmp_path).at(elapsed) == elapsed - round(hold.held_s * 1e9)
    assert hold.held_s >= 0.05


def test_a_process_born_just_before_is_held_too(spawn, eventually, guard, tmp_path):
    job = spawn(BREEDS)
    hold = Hold(job.pid, tmp_path, 0, guard)
    os.kill(job.pid, signal.SIGUSR1)
    eventually(lambda: len(states(job.pid)) == 2)
    hold.hold()
    eventually(lambda: hold.hold() or stopped(job.pid))
    hold.release()
    eventually(lambda: goes_on(job.pid))


def test_one_runs_at_a_time_and_all_go_on_when_something_fails(spawn, eventually, tmp_path):
    jobs = [spawn(SPINS) for _ in range(3)]
    with pytest.raises(ZeroDivisionError), Turns() as turns:
        for job in jobs:
            (tmp_path / str(job.pid)).mkdir()
            turns.enter(job.pid, tmp_path / str(job.pid), 0)
        for job in jobs:
            turns.give(job.pid)
            eventually(lambda: [goes_on(each.pid) for each in jobs].count(True) == 1)
            assert goes_on(job.pid)
        raise ZeroDivisionError
    eventually(lambda: all(goes_on(job.pid) for job in jobs))


def test_a_job_may_run_on_every_core_after_it_was_woken_on_one(spawn, guard, tmp_path):
    job = spawn(SPINS)
    hold = Hold(job.pid, tmp_path, 0, guard)
    for core in sorted(os.sched_getaffinity(0)):
        hold.hold()
        hold.release(core)
        assert os.sched_getaffinity(job.pid) == os.sched_getaffinity(0)
    chosen = {min(os.sched_getaffinity(0))}
    os.sched_setaffinity(job.pid, chosen)
    hold.hold()
    hold.release(max(os.sched_getaffinity(0)))
    assert os.sched_getaffinity(job.pid) == chosen, "what a job has chosen is left alone"


def test_who_computes_is_told_from_who_waits(spawn, eventually, guard, tmp_path):
    busy, idle = (Hold(spawn(program).pid, tmp_path, 0, guard) for program in (SPINS, FAMILY))
    assert sum(busy.busy_threads() for _ in range(20)) >= 18
    eventually(lambda: idle.busy_threads() == 0)


def test_a_stopped_job_can_be_ended(spawn):
    job = spawn(FAMILY)
    os.kill(job.pid, signal.SIGSTOP)
    assert end_job(job.pid).by is Means.INTERRUPT


def test_nothing_stays_stopped_when_hotlap_is_killed(spawn, eventually, tmp_path):
    job = spawn(FAMILY)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(job.pid), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    eventually(lambda: stopped(job.pid))
    holder.kill()
    holder.wait()
    holder.stdout.close()
    eventually(lambda: goes_on(job.pid))
