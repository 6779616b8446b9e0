"""The device's clock. Events here are stand-ins that complete when the test says so; tests/clock_device has others."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import pytest
import torch

from hotlap.facts.timeline import Gauge, Stage
from hotlap.probe import boundary, device, marks
from hotlap.probe.marks import Kind
from hotlap.timeline.fold import book_device, fold, with_device_memory

MS = 1_000_000


class StandIn:
    """A device whose work takes the times it is told; events complete in the order they were recorded."""

    def __init__(self, idle: bool = True):
        self.now_ms = 0.0
        self.idle = idle
        self.asked_to_wait = False
        self.capturing = False
        self.looks = 0

    @property
    def time_ms(self):
        return self.now_ms + self.looks / 1000

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

    def record(self, stream=None):
        self.owner.touched()
        self.at = self.owner.time_ms

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
def stand_in(monkeypatch):
    """Its clock is the host's too, but for a microsecond that each look at it takes."""
    made = StandIn()

    def now():
        made.looks += 1
        return int(made.time_ms * MS)

    monkeypatch.setattr(device, "now", now)
    return made


def clock_of(session, stand_in, *others):
    lines = [device.Line(stand_in.event), *(device.Line(other.event, lambda: None) for other in others)]
    return device.DeviceClock(session, lines, stand_in.is_capturing)


def laps(session):
    """(part, time) of what the device has finished."""
    return [(mark & 255, mark >> 8) for mark in session.buffer if mark & 255 != marks.DEVICE_QUEUED]


def test_laps_are_written_when_the_device_is_through(stand_in):
    session = Session()
    clock = clock_of(session, stand_in)
    stand_in.now_ms = 10.0
    clock.switch(marks.DEVICE_FORWARD)
    stand_in.idle = False
    stand_in.now_ms = 25.0
    clock.switch(marks.DEVICE_BACKWARD)
    clock.waited()
    assert not session.buffer
    stand_in.idle = True
    clock.waited()
    (gap, begun), (forward, ended) = laps(session)
    assert (gap, forward) == (marks.DEVICE_GAP, marks.DEVICE_FORWARD)
    assert ended - begun == pytest.approx(15 * MS, rel=1e-2)
    assert not stand_in.asked_to_wait


def test_a_part_on_two_devices_ends_where_both_are_through(stand_in):
    session, other = Session(), StandIn()
    clock = clock_of(session, stand_in, other)
    clock.switch(marks.DEVICE_FORWARD)
    clock.waited()
    stand_in.now_ms, other.now_ms = 9.0, 9.0
    clock.switch(marks.DEVICE_BACKWARD)
    clock._pending[0][2][1].at = stand_in.now_ms = 14.0
    clock.waited()
    times = dict(laps(session))
    assert times[marks.DEVICE_FORWARD] - times[marks.DEVICE_GAP] == pytest.approx(14 * MS, rel=0.05)


def test_to_go_on_with_the_same_part_is_no_border(stand_in):
    session = Session()
    clock = clock_of(session, stand_in)
    clock.forward_begins()
    clock.forward_begins()
    clock.switch(marks.DEVICE_BACKWARD)
    clock.waited()
    assert [part for part, _ in laps(session)] == [marks.DEVICE_GAP, marks.DEVICE_FORWARD]


class Behind(StandIn):
    """A device that is never idle: each event completes so many milliseconds after it was recorded, and its own clock
    began when the host's stood elsewhere."""

    def __init__(self, host, lag_ms, elsewhere_ms):
        super().__init__()
        self.host, self.lag_ms, self.elsewhere_ms = host, lag_ms, elsewhere_ms

    def event(self):
        return BehindEvent(self)


class BehindEvent(StandInEvent):
    def record(self):
        self.at = self.owner.host.time_ms + self.owner.lag_ms + self.owner.elsewhere_ms

    def query(self):
        return self.owner.host.time_ms >= self.at - self.owner.elsewhere_ms


def test_a_device_that_is_never_idle_is_placed_by_all_its_events_together(stand_in):
    session, behind = Session(), Behind(stand_in, 7.3, 5_000.0)
    clock = clock_of(session, behind)
    planted = []
    for step in range(300):
        for part, ms in (
            (marks.DEVICE_FORWARD, 1.37),
            (marks.DEVICE_BACKWARD, 2.71),
            (marks.DEVICE_GAP, 0.59),
        ):
            planted.append(stand_in.time_ms + 7.3)
            clock.switch(part)
            stand_in.now_ms += ms + 0.01 * (step % 17)
    clock.ends()
    got = [at / MS for _, at in laps(session)]
    assert len(got) > 800
    assert max(abs(one - other) for one, other in zip(got, planted, strict=False)) < 0.1


def test_where_the_clocks_cannot_be_compared_nothing_is_said(stand_in):
    session, behind = Session(), Behind(stand_in, 7.3, 0.0)
    clock = clock_of(session, behind)
    for part in (marks.DEVICE_FORWARD, marks.DEVICE_BACKWARD, marks.DEVICE_OPTIMIZER):
        clock.switch(part)
    stand_in.now_ms = 500.0
    clock.ends()
    assert not session.buffer
    assert [fault for fault in boundary.faults if "its clock is known to" in fault]
    boundary.faults.clear()


def test_a_device_far_behind_does_not_fill_memory(stand_in):
    clock = clock_of(Session(), stand_in)
    clock.switch(marks.DEVICE_FORWARD)
    stand_in.idle = False
    for _ in range(5_000):
        clock.switch(marks.DEVICE_BACKWARD)
        clock.switch(marks.DEVICE_FORWARD)
    assert len(clock._pending) <= device._MOST_PENDING


def test_many_copies_of_one_step_are_timed_as_one(stand_in):
    session = Session()
    clock = clock_of(session, stand_in)
    for _ in range(100):
        clock.copy_ends(clock.copy_begins())
    clock.forward_begins()
    clock.waited()
    assert sum(part == marks.DEVICE_TRANSFER for part, _ in laps(session)) == device._MOST_COPIES


def test_a_copy_on_a_stream_of_its_own_is_no_part_of_the_step(stand_in):
    session, stream = Session(), SimpleNamespace(current="main")
    clock = device.DeviceClock(
        session, [device.Line(stand_in.event)], stand_in.is_capturing, lambda: stream.current
    )
    clock.forward_begins()
    stream.current = "beside"
    begun = clock.copy_begins()
    stand_in.now_ms = 4.0
    clock.copy_ends(begun)
    clock.waited()
    times = dict(laps(session))
    assert times[marks.DEVICE_COPY_ENDS] - times[marks.DEVICE_COPY_BEGINS] == pytest.approx(4 * MS, rel=1e-6)
    assert marks.DEVICE_TRANSFER not in times


def test_a_graph_is_captured_as_if_no_one_were_there(stand_in):
    session = Session()
    clock = clock_of(session, stand_in)
    stand_in.capturing = True
    clock.switch(marks.DEVICE_FORWARD)  # no anchor is looked for either
    clock.step_ends()
    stand_in.capturing = False
    clock.switch(marks.DEVICE_FORWARD)
    stand_in.capturing = True
    clock.switch(marks.DEVICE_BACKWARD)
    clock.step_ends()
    assert not session.buffer
    stand_in.capturing = False
    clock.switch(marks.DEVICE_OPTIMIZER)
    clock.step_ends()
    clock.waited()
    assert [part for part, _ in laps(session)] == [marks.DEVICE_GAP, marks.DEVICE_GAP, marks.DEVICE_OPTIMIZER]


def test_events_that_fail_are_given_up_and_the_step_goes_on(stand_in, monkeypatch):
    session = Session()
    clock = clock_of(session, stand_in)
    clock.switch(marks.DEVICE_FORWARD)

    def broken():
        raise RuntimeError("no such event any more")

    clock._lines[0].make_event = broken
    clock.switch(marks.DEVICE_BACKWARD)
    clock.switch(marks.DEVICE_OPTIMIZER)
    assert clock.off
    assert sum("not measured" in fault for fault in boundary.faults) == 1
    boundary.faults.clear()


def test_a_step_that_is_captured_is_left_alone(session, stand_in, monkeypatch):
    """Through the taps, as torch would say it."""
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        is_available=lambda: True,
        Event=lambda enable_timing: stand_in.event(),
        is_current_stream_capturing=stand_in.is_capturing,
        memory_allocated=lambda: 1,
        memory_reserved=lambda: 2,
        mem_get_info=lambda: (1, 3),
        current_device=lambda: 0,
        current_stream=lambda index: 0,
    )
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(device, "_indices", lambda *_: {0})
    device.install(session)
    for stand_in.capturing in (True, False):
        for listener in (*session.step_begins, *session.step_ends):
            listener()
    session.device.waited()
    codes = [mark & 255 for mark in session.ring.buffer]
    assert codes.count(marks.DEVICE_GAP) == codes.count(marks.DEVICE_OPTIMIZER) == 1
    assert marks.DEVICE_ALLOCATED in codes
    assert session.facts["accelerator"] == {"kind": "cuda", "name": "cuda", "memory_bytes": 3}


def marks_of(steps: int) -> list[int]:
    """Steps of 12 ms: the host queues forward and backward in 1 ms each and then waits 8 ms in .item(). The device is
    at forward from 0.5 to 5 ms, at backward until 10.5 ms, and idle while the host fetches the next batch."""
    raw, late = [], []
    for step in range(steps):
        t = step * 12 * MS

        def span(kind, start, end, t=t):
            return [int(t + start * MS) << 8 | marks.enter(kind), int(t + end * MS) << 8 | marks.leave(kind)]

        def lap(code, completed, queued, t=t):
            return [int(t + completed * MS) << 8 | code, int(t + queued * MS) << 8 | marks.DEVICE_QUEUED]

        raw += span(Kind.DATA, 0, 0.5)
        raw += span(Kind.FORWARD, 0.5, 1.5)
        raw += span(Kind.BACKWARD, 1.5, 2.5)
        raw += span(Kind.SYNC, 2.5, 10.5)
        raw += span(Kind.STEP, 10.5, 12)
        raw.append(0 << 8 | marks.OPTIMIZER_ID)
        late += lap(marks.DEVICE_GAP, 0.5, 0.5) + lap(marks.DEVICE_FORWARD, 5, 1.5)
        late += lap(marks.DEVICE_BACKWARD, 10.5, 2.5) + lap(marks.DEVICE_GAP, 10.5, 10.5)
        late += lap(marks.DEVICE_OPTIMIZER, 12, 12)
    return [int(mark) for mark in raw + late]


def test_time_is_booked_to_what_the_device_was_doing():
    raw = marks_of(6)
    seen = fold(raw)
    assert seen.columns.steps().stages[Stage.FORWARD][3] == 1 * MS
    device_time = book_device(seen, raw)
    after = seen.columns.steps()
    got = {stage: column[3] / MS for stage, column in after.stages.items() if column[3]}
    assert got == pytest.approx({"data": 0.5, "forward": 4.5, "backward": 5.5, "optimizer": 1.5})
    assert sum(column[3] for column in after.stages.values()) == after.wall[3]
    assert device_time.busy == pytest.approx(11.5 / 12)
    assert device_time.idle == pytest.approx({Stage.DATA: 0.5 / 12})


def test_steps_that_the_events_cover_in_part_keep_the_hosts_account():
    raw = marks_of(6)
    seen = fold(raw)
    book_device(seen, [mark for mark in raw if mark & 255 not in marks.DEVICE_TIMES or mark >> 8 < 30 * MS])
    assert seen.columns.steps().stages[Stage.FORWARD][1] == pytest.approx(4.5 * MS)
    assert seen.columns.steps().stages[Stage.FORWARD][4] == 1 * MS


def test_without_device_events_nothing_moves():
    raw = [mark for mark in marks_of(4) if mark & 255 not in marks.DEVICE_TIMES]
    seen = fold(raw)
    before = [list(column) for column in seen.columns.stages]
    assert book_device(seen, raw) is None
    assert [list(column) for column in seen.columns.stages] == before


def test_the_allocators_figures_reach_the_gauges(stand_in):
    session = Session()
    clock = clock_of(session, stand_in)
    session.append(5 * MS << 8 | marks.leave(Kind.STEP))
    clock.weigh(lambda: 300, lambda: 500)
    clock.weigh(lambda: 999, lambda: 999)  # too soon after the first
    gauges = [
        Gauge(t=t, rss=1, cpu=0.0, workers_cpu=0.0, foreign_cpu=0.0, iowait=0.0) for t in (4 * MS, 6 * MS)
    ]
    before, after = with_device_memory(gauges, session.buffer)
    assert before.cuda_allocated is None
    assert (after.cuda_allocated, after.cuda_reserved) == (300, 500)
