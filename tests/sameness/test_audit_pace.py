"""Work stays within its share of the time that a thread itself has, whoever else wants the core."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from hotlap.sameness import audit
from hotlap.sameness.audit import Pace, own_time


class Clocks:
    """The clock, and what of it the thread has waited for a core."""

    def __init__(self, monkeypatch):
        self.now, self.waited, self.looks = 100.0, 0.0, 0
        monkeypatch.setattr(audit.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(audit, "_waited_s", self._asked)

    def _asked(self):
        self.looks += 1
        return self.waited

    def passes(self, seconds, waiting=0.0):
        self.now += seconds
        self.waited += waiting


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def spent(clocks, pace, steps, step, waiting, cost):
    """Own seconds of work and of steps; a piece of work is over before another process gets the core."""
    work = 0.0
    for _ in range(steps):
        clocks.passes(step + waiting, waiting)
        if pace.due():
            with pace.timed():
                clocks.passes(cost)
            work += cost
    return work / (steps * step)


@pytest.mark.parametrize("waiting", [0.0, 0.02], ids=["alone", "beside others"])
def test_work_takes_its_share_of_the_own_time(clocks, waiting):
    share = spent(clocks, Pace(0.004), 20_000, 0.001, waiting, 0.0002)
    assert 0.003 < share <= 0.0041


def test_the_clock_alone_says_that_nothing_is_due(clocks):
    mine = Pace(0.01)
    assert mine.due()
    with mine.timed():
        clocks.passes(0.001)
    looks = clocks.looks
    for _ in range(90):
        clocks.passes(0.001)
        assert not mine.due()
    assert clocks.looks == looks
    clocks.passes(0.02)
    assert mine.due()


def test_what_may_be_spent_grows_with_the_own_time(clocks):
    mine = Pace(0.01)
    clocks.passes(10.0, waiting=8.0)
    assert mine.credit_s == pytest.approx(0.02)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="not counted here")
def test_each_thread_has_its_own_file_which_goes_with_it():
    before = len([*Path("/proc/self/fd").iterdir()])
    seen = []
    for _ in range(3):
        thread = threading.Thread(target=lambda: (own_time(), seen.append(audit._local.count._file)))
        thread.start()
        thread.join()
    assert min(seen) >= 0
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_where_it_is_not_counted_the_clock_decides(monkeypatch):
    monkeypatch.setattr(audit, "_local", threading.local())
    monkeypatch.setattr(audit.os, "open", lambda *_: (_ for _ in ()).throw(OSError()))
    monkeypatch.setattr(audit.time, "perf_counter", lambda: 7.0)
    assert own_time() == 7.0
