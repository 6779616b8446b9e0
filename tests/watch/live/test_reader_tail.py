"""The end of a file of marks, as it grows, is torn, thinned or begun anew; and what the last steps were made of."""

from __future__ import annotations

from array import array

import pytest

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.timeline.fold import fold
from hotlap.watch.live.reader import KEPT, Tail, lately

MS = 1_000_000


def step(start, data=2, forward=3, backward=4, optimizer=1, samples=32):
    """The marks of one step that begins at `start` milliseconds, and when it ended."""
    values, at = [], start * MS
    parts = ((Kind.DATA, data), (Kind.FORWARD, forward), (Kind.BACKWARD, backward), (Kind.STEP, optimizer))
    for kind, ms in parts:
        values.append(at << 8 | marks.enter(kind))
        at += ms * MS
        values.append(at << 8 | marks.leave(kind))
        if kind is Kind.DATA:
            values += [0 << 8 | marks.LOADER_ID, samples << 8 | marks.SAMPLES]
    values.append(0 << 8 | marks.OPTIMIZER_ID)
    return values, at // MS


def steps(count, start=0, **words):
    values = []
    for _ in range(count):
        more, start = step(start, **words)
        values += more
    return array("q", values), start


@pytest.fixture
def tail(tmp_path):
    return Tail(tmp_path / "77.marks")


def test_steps_are_counted_as_the_file_grows(tail):
    for part in range(5):
        values, _ = steps(10, start=part * 100)
        with tail.path.open("ab") as file:
            file.write(values.tobytes())
        tail.read()
        assert tail.steps == 10 * (part + 1)
    assert tail.pid == 77


def test_a_torn_mark_is_read_when_it_is_whole(tail):
    content = steps(3)[0].tobytes()
    tail.path.write_bytes(content[:-3])
    tail.read()
    assert tail.steps == 2
    tail.path.write_bytes(content)
    tail.read()
    assert tail.steps == 3


def test_steps_that_were_thinned_out_are_counted_and_are_no_drift(tail):
    values, end = steps(200)
    values.append(5000 << 8 | marks.DROPPED)
    values += steps(200, start=end + 100_000)[0]
    tail.path.write_bytes(values.tobytes())
    tail.read()
    assert tail.steps == 5400
    assert tail.drift.word().figures["now"] == pytest.approx(100, rel=0.02)


def test_a_job_that_was_started_again_is_read_anew(tail):
    tail.path.write_bytes(steps(50)[0].tobytes())
    tail.read()
    tail.path.write_bytes(steps(3)[0].tobytes())
    tail.read()
    assert tail.steps == 3


def test_what_is_kept_does_not_grow(tail):
    tail.path.write_bytes(steps(6000)[0].tobytes())
    tail.read()
    assert tail.steps == 6000 and len(tail.recent) == KEPT


def test_a_script_without_an_optimizer_is_counted_by_its_backward_passes(tail):
    values = array(
        "q", [value for value in steps(20)[0] if value & 255 != marks.OPTIMIZER_ID and value & 255 >> 1 != 6]
    )
    tail.path.write_bytes(values.tobytes())
    tail.read()
    assert tail.steps == 20


def test_the_stages_of_the_last_steps():
    slow, end = steps(50, data=40)
    values = slow + steps(1500, start=end)[0]
    seen = lately(values, fold)
    assert seen["steps"] > 20 and seen["step_ms"] == pytest.approx(10)
    assert seen["steps_per_s"] == pytest.approx(100) and seen["samples_per_s"] == pytest.approx(3200)
    assert seen["stages"]["data"] == pytest.approx(0.2) and seen["stages"]["backward"] == pytest.approx(0.4)
    assert sum(seen["stages"].values()) == pytest.approx(1.0)


def test_too_little_to_say_anything():
    assert lately(array("q"), fold) is None
    assert lately(steps(1)[0], fold) is None
    assert lately(steps(2)[0], fold)["steps"] == 1
