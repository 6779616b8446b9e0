"""The machine's own pace: repeatable, lower when less of the machine is to be had, and nothing is left behind."""

from __future__ import annotations

import os

import psutil
import pytest

from hotlap.host import machine

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def test_a_pace_is_pieces_a_second(monkeypatch):
    asked = []
    monkeypatch.setattr(machine, "slowest", lambda count, work: asked.append(count) or 0.25)
    assert machine.pace(3) == pytest.approx(4.0)
    assert set(asked) == {3}


def test_one_slow_look_does_not_count(monkeypatch):
    looks = iter([5.0, *[0.1] * 100])
    monkeypatch.setattr(machine, "slowest", lambda count, work: next(looks))
    assert machine.pace(2) == pytest.approx(10.0)


@pytest.mark.alone
def test_more_work_than_cores_is_slower():
    """Four at once on the cores of one: what a neighbour does to a job shows in the pace."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    if not cores:
        pytest.skip("processes cannot be bound to a core here")
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert machine.pace(4) < 0.7 * machine.pace(1)
    finally:
        os.sched_setaffinity(0, cores)


def test_no_process_and_no_open_file_is_left():
    me = psutil.Process()
    before = (me.num_fds(), len(me.children()))
    machine.slowest(2, machine._fixed_work)
    assert (me.num_fds(), len(me.children())) == before
