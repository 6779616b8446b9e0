"""The device's clock. There is no CUDA here: events are stand-ins that complete when the test says so."""

from __future__ import annotations

from array import array

import pytest
import torch

from hotlap.diagnose.device import book_waits, with_device_memory
from hotlap.diagnose.fold import fold
from hotlap.facts.timeline import Gauge, Stage
from hotlap.probe import device, marks
from hotlap.probe.marks import Kind

MS = 1_000_000


class StandIn:
    """A device whose work takes the times it is told; events complete in the order they were recorded."""

    def __init__(self, idle: bool = True):
        self.now_ms = 0.0
        self.idle = idle
        self.asked_to_wait = False
        self.capturing = False

    def event(self):
        return StandInEvent(self)

    def is_capturing(self):
        return self.capturing

    def touched(self):
        assert not self.capturing, "a capture under way ends with an error"


class StandInEvent:
    def __init__(self, owner):
        self.owner = owner
        self.at = None

    def record(self):
        self.owner.touched()
        self.at = self.owner.now_ms

    def query(self):
        self.owner.touched()
        return self.owner.idle

    def elapsed_time(self, end):
        return end.at - self.at

    def synchronize(self):
        self.owner.asked_to_wait = True


class Session:
    """What the clock needs of a session."""

    def __init__(self):
        self.buffer = array("q")
        self.append = self.buffer.append
        self.origin = 0


@pytest.fixture
def stand_in():
    return StandIn()


def test_laps_are_written_when_the_device_is_through(stand_in):
    session = Session()
    clock = device.DeviceClock(session, stand_in.event)
    stand_in.now_ms = 10.0
    clock.lap(marks.DEVICE_FORWARD)  # the anchor was recorded a moment before, at 10 ms too
    stand_in.now_ms = 25.0
    clock.lap(marks.DEVICE_BACKWARD)
    stand_in.idle = False
    clock.drain()
    assert not session.buffer
    stand_in.idle = True
    clock.drain()
    codes = [mark & 255 for mark in session.buffer]
    assert codes == [marks.DEVICE_FORWARD, marks.DEVICE_BACKWARD]
    first, second = (mark >> 8 for mark in session.buffer)
    assert second - first == pytest.approx(15 * MS, rel=1e-6)
    assert not stand_in.asked_to_wait


def test_without_an_idle_moment_nothing_is_timed():
    session, busy = Session(), StandIn(idle=False)
    clock = device.DeviceClock(session, busy.event)
    clock.lap(marks.DEVICE_FORWARD)
    busy.idle = True
    clock.drain()
    assert not session.buffer


def test_a_device_far_behind_does_not_fill_memory(stand_in):
    clock = device.DeviceClock(Session(), stand_in.event)
    clock.lap(marks.DEVICE_FORWARD)
    stand_in.idle = False
    for _ in range(10_000):
        clock.lap(marks.DEVICE_FORWARD)
    assert len(clock._pending) <= device._MOST_PENDING


def test_a_graph_is_captured_as_if_no_one_were_there(stand_in):
    session = Session()
    clock = device.DeviceClock(session, stand_in.event, stand_in.is_capturing)
    stand_in.capturing = True
    clock.lap(marks.DEVICE_FORWARD)  # no anchor is looked for either
    clock.drain()
    stand_in.capturing = False
    clock.lap(marks.DEVICE_FORWARD)
    stand_in.capturing = True
    clock.lap(marks.DEVICE_BACKWARD)
    clock.drain()
    assert not session.buffer
    stand_in.capturing = False
    clock.lap(marks.DEVICE_OPTIMIZER)
    clock.drain()
    assert [mark & 255 for mark in session.buffer] == [marks.DEVICE_FORWARD, marks.DEVICE_OPTIMIZER]


def test_a_step_that_is_captured_is_left_alone(session, stand_in, monkeypatch):
    """Through the taps, as torch would say it."""
    monkeypatch.setattr(torch.cuda, "_initialized", True)
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: stand_in.event())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", stand_in.is_capturing)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2)
    device.install(session)
    for stand_in.capturing in (True, False):
        for listener in (*session.step_begins, *session.step_ends):
            listener()
    codes = [mark & 255 for mark in session.ring.buffer]
    assert codes.count(marks.DEVICE_BACKWARD) == codes.count(marks.DEVICE_OPTIMIZER) == 1


def launch_bound_marks(steps: int) -> list[int]:
    """Steps whose host queues forward and backward in 1 ms each and then waits 8 ms in .item()."""
    raw, late = [], []
    for step in range(steps):
        t = step * 12 * MS

        def span(kind, start, end, t=t):
            return [int(t + start * MS) << 8 | marks.enter(kind), int(t + end * MS) << 8 | marks.leave(kind)]

        raw += span(Kind.DATA, 0, 0.5)
        raw += span(Kind.FORWARD, 0.5, 1.5)
        raw += span(Kind.BACKWARD, 1.5, 2.5)
        raw += span(Kind.SYNC, 2.5, 10.5)
        raw += span(Kind.STEP, 10.5, 12)
        raw.append(0 << 8 | marks.OPTIMIZER_ID)
        late += [(t + 5 * MS) << 8 | marks.DEVICE_FORWARD, (t + int(10.5 * MS)) << 8 | marks.DEVICE_BACKWARD]
    return [int(mark) for mark in raw + late]


def test_a_wait_in_item_is_booked_to_what_the_device_was_doing():
    raw = [int(mark) for mark in launch_bound_marks(6)]
    seen = fold(raw)
    before = seen.columns.steps()
    assert before.stages[Stage.FORWARD][3] == 1 * MS
    book_waits(seen, raw)
    after = seen.columns.steps()
    assert after.stages[Stage.FORWARD][3] == pytest.approx(1 * MS + 2.5 * MS)
    assert after.stages[Stage.BACKWARD][3] == pytest.approx(1 * MS + 5.5 * MS)
    assert sum(column[3] for column in after.stages.values()) == after.wall[3]


def test_without_device_events_nothing_moves():
    raw = [
        mark
        for mark in launch_bound_marks(4)
        if mark & 255 not in (marks.DEVICE_FORWARD, marks.DEVICE_BACKWARD)
    ]
    seen = fold(raw)
    before = [list(column) for column in seen.columns.stages]
    book_waits(seen, raw)
    assert [list(column) for column in seen.columns.stages] == before


def test_the_allocators_figures_reach_the_gauges(stand_in):
    session = Session()
    clock = device.DeviceClock(session, stand_in.event)
    session.append(5 * MS << 8 | marks.leave(Kind.STEP))
    clock.weigh(lambda: 300, lambda: 500)
    clock.weigh(lambda: 999, lambda: 999)  # too soon after the first
    gauges = [
        Gauge(t=t, rss=1, cpu=0.0, workers_cpu=0.0, foreign_cpu=0.0, iowait=0.0) for t in (4 * MS, 6 * MS)
    ]
    before, after = with_device_memory(gauges, session.buffer)
    assert before.cuda_allocated is None
    assert (after.cuda_allocated, after.cuda_reserved) == (300, 500)
