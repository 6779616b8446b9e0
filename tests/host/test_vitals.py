"""Vitals are taken of real processes; GPUs come from a stand-in for pynvml (conftest.py), as none is here."""

from __future__ import annotations

import os
import time

import psutil
import pytest

from hotlap.host.vitals import ProcessTree, Vitals

MIB = 1 << 20
BUSY = "print('ready')\nwhile True: pass"
IDLE = "print('ready')\nimport time\ntime.sleep(600)"
BUSY_WORKER = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "while True: pass"])
print("ready")
time.sleep(600)
"""
# One worker after another, each of which lives for less than the time between two looks.
SHORT_WORKERS = """
import subprocess, sys
worker = "import time\\nend = time.process_time() + 0.1\\nwhile time.process_time() < end: pass"
print("ready")
while True:
    subprocess.run([sys.executable, "-c", worker])
"""
GROWING = """
import time
print("ready")
kept = []
while True:
    kept.append(b"x" * (1 << 20))
    time.sleep(0.001)
"""


def after(vitals, seconds=0.6):
    time.sleep(seconds)
    return vitals.look()


class Meter:
    """CPU shares of one process by its own counters: the truth, however busy this machine is."""

    def __init__(self, pid: int) -> None:
        self.process = psutil.Process(pid)
        self.begin, self.before = time.perf_counter(), self.process.cpu_times()

    def own(self) -> float:
        return self._share("user", "system")

    def reaped(self) -> float:
        return self._share("children_user", "children_system")

    def _share(self, *counters: str) -> float:
        now = self.process.cpu_times()
        used = sum(getattr(now, name) - getattr(self.before, name) for name in counters)
        return used / (time.perf_counter() - self.begin)


def close_to(share):
    return pytest.approx(share, abs=0.1, rel=0.2)


@pytest.mark.alone
def test_cpu_of_the_main_process_is_its_own(spawn):
    job = spawn(BUSY)
    with Vitals(job.pid) as vitals:
        meter = Meter(job.pid)
        gauge = after(vitals).gauge()
    assert gauge.cpu == close_to(meter.own())
    assert gauge.cpu > 0
    assert gauge.workers_cpu == 0


@pytest.mark.alone
def test_cpu_of_a_worker_is_not_that_of_the_main_process(spawn):
    job = spawn(BUSY_WORKER)
    (worker,) = psutil.Process(job.pid).children()
    with Vitals(job.pid) as vitals:
        meter = Meter(worker.pid)
        gauge = after(vitals).gauge()
    assert gauge.cpu < 0.05
    assert gauge.workers_cpu == close_to(meter.own())
    assert gauge.workers_cpu > 0
    assert gauge.rss == pytest.approx(psutil.Process(job.pid).memory_info().rss, rel=0.2)
    assert gauge.tree_rss > gauge.rss + MIB


@pytest.mark.alone
def test_cpu_of_workers_that_ended_between_two_looks_is_the_jobs(spawn):
    job = spawn(SHORT_WORKERS)
    with Vitals(job.pid) as vitals:
        meter = Meter(job.pid)
        looks = [after(vitals, 0.5) for _ in range(5)]
        truth = meter.reaped()
    workers = sum(look.gauge().workers_cpu * look.span_s for look in looks) / sum(
        look.span_s for look in looks
    )
    alive_at_a_look = sum(
        u.own for look in looks for pid, u in look.processes.items() if pid != job.pid
    ) / len(looks)
    assert workers == pytest.approx(truth, abs=0.12, rel=0.3)
    assert workers > 1.5 * alive_at_a_look, "no look sees more than the one worker that is alive just then"


@pytest.mark.alone
def test_foreign_cpu_is_that_of_others_on_the_same_cores(spawn):
    job, other = spawn(IDLE), spawn(BUSY)
    with Vitals(job.pid) as vitals:
        meter = Meter(other.pid)
        gauge = after(vitals).gauge()
        truth = meter.own()
    assert gauge.foreign_cpu > 0.7 * truth > 0
    assert gauge.cpu < 0.05
    assert len(gauge.cores) == len(psutil.Process().cpu_affinity())
    assert all(0 <= share <= 1 for share in gauge.cores)
    assert sum(gauge.cores) >= gauge.foreign_cpu


@pytest.mark.alone
def test_the_jobs_own_cpu_is_not_foreign(spawn):
    job = spawn(BUSY_WORKER)
    with Vitals(job.pid) as vitals:
        gauge = after(vitals).gauge()
    assert gauge.foreign_cpu <= sum(gauge.cores) - gauge.workers_cpu + 0.01


def test_growing_memory_is_seen(spawn):
    with Vitals(spawn(GROWING).pid) as vitals:
        sizes = [after(vitals, 0.2).gauge().rss for _ in range(3)]
    assert sizes == sorted(sizes)
    assert sizes[-1] > sizes[0] + MIB


def test_time_is_that_of_the_clock(spawn):
    ticks = iter(range(10**9, 10**11, 10**9))
    with Vitals(spawn(IDLE).pid, clock=lambda: next(ticks)) as vitals:
        look = after(vitals, 0.0)
    assert look.t == 2 * 10**9
    assert look.span_s == 1.0


def test_processes_that_vanish_between_two_looks_raise_nothing(spawn, eventually):
    job = spawn(BUSY_WORKER)
    with Vitals(job.pid) as vitals:
        (worker,) = set(after(vitals, 0.05).processes) - {job.pid}
        os.kill(worker, 9)
        assert after(vitals, 0.05).gauge() is not None
        job.kill()
        eventually(lambda: psutil.Process(job.pid).status() == psutil.STATUS_ZOMBIE)
        assert vitals.look() is None, "it has ended, though it has not been waited for"
        job.wait()
        assert vitals.look() is None
        assert vitals.look() is None


def test_a_process_that_vanishes_while_it_is_read_raises_nothing(spawn, eventually, monkeypatch):
    forgets_its_children = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    job = spawn(forgets_its_children + BUSY_WORKER)
    with Vitals(job.pid) as vitals:
        (worker,) = set(after(vitals, 0.05).processes) - {job.pid}
        members = ProcessTree.members

        def outdated(tree):
            listed = members(tree)
            psutil.Process(worker).kill()
            eventually(lambda: not psutil.pid_exists(worker))
            return listed

        monkeypatch.setattr(ProcessTree, "members", outdated)
        look = vitals.look()
    assert set(look.processes) == {job.pid}


def test_a_job_that_never_was_has_no_vitals(spawn):
    job = spawn("print('ready')")
    job.wait()
    with Vitals(job.pid) as vitals:
        assert vitals.look() is None


def test_the_gpu_of_the_job_is_looked_at_and_the_driver_let_go(spawn, nvml):
    job = spawn(IDLE)
    nvml.gpus[1].processes = {job.pid: 123 * MIB}
    with Vitals(job.pid) as vitals:
        gauge = after(vitals, 0.05).gauge()
        assert nvml.sessions == 1
    assert (gauge.gpu_busy, gauge.gpu_memory, gauge.gpu_memory_used) == (0.25, 123 * MIB, 1 << 30)
    assert nvml.sessions == 0
