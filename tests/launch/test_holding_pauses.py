"""The clock of a job that was held: what was marked after a pause comes right after what was marked before it."""

from __future__ import annotations

from array import array

import pytest

from hotlap.launch.holding import ALWAYS, Clock, note_pause, read_clock
from hotlap.probe import marks
from hotlap.probe.marks import Kind, enter, leave
from hotlap.probe.sampler import LINE_BITS


@pytest.fixture
def clock(tmp_path):
    note_pause(tmp_path, 100, 250)
    note_pause(tmp_path, 300, 1300)
    return read_clock(tmp_path)


@pytest.mark.parametrize(
    ("t", "shown"),
    [(0, 0), (99, 99), (100, 100), (249, 100), (250, 100), (299, 149), (300, 150), (1299, 150), (1301, 151)],
)
def test_it_stands_still_in_the_pauses(clock, t, shown):
    assert clock.at(t) == shown


def test_it_never_goes_back(clock):
    shown = [clock.at(t) for t in range(1500)]
    assert shown == sorted(shown)
    assert shown[-1] == 1499 - 150 - 1000


def test_only_what_is_a_time_is_moved(clock):
    raw = array("q", (t << 8 | code for t, code in [(90, enter(Kind.DATA)), (260, leave(Kind.DATA))]))
    raw += array("q", [512 << 8 | marks.SAMPLES, 260 << 8 | marks.EVAL_ON, 400 << 8 | marks.FETCH_CPU])
    values = [each >> 8 for each in clock.marks(raw)]
    assert values == [90, 110, 512, 110, 400]
    assert [each & 255 for each in clock.marks(raw)] == [each & 255 for each in raw]


def test_samples_keep_their_line():
    clock = Clock([(2_000_000, 5_000_000)])
    (moved,) = clock.samples(array("q", [6000 << LINE_BITS | 17]))
    assert moved == 3000 << LINE_BITS | 17


def test_a_job_that_was_never_held_keeps_its_marks_as_they_are(tmp_path):
    clock = read_clock(tmp_path)
    raw = array("q", [7 << 8])
    assert clock is ALWAYS
    assert clock.marks(raw) is raw
    assert clock.samples(raw) is raw
    assert clock.at(123) == 123


def test_a_pause_that_is_half_written_is_left_away(tmp_path):
    note_pause(tmp_path, 10, 20)
    with (tmp_path / "pauses").open("ab") as file:
        file.write(bytes(8))
    assert read_clock(tmp_path).at(30) == 20
