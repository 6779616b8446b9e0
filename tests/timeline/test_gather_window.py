from __future__ import annotations

from array import array

from hotlap.probe.marks import SAMPLES, WINDOW_END, Kind, enter, leave
from hotlap.probe.sampler import LINE_BITS
from hotlap.timeline.gather import marks_within, samples_within


def marks(*pairs: tuple[int, int]) -> array[int]:
    return array("q", [value << 8 | code for value, code in pairs])


STEP = ((100, enter(Kind.FORWARD)), (200, leave(Kind.FORWARD)), (64, SAMPLES))


def test_what_follows_the_mark_is_cut_off():
    raw = marks(*STEP, (0, WINDOW_END), (300, enter(Kind.FORWARD)))
    assert marks_within(raw, None) == marks(*STEP)


def test_a_worker_has_no_mark_but_the_moment():
    raw = marks(*STEP, (300, enter(Kind.FETCH)), (400, leave(Kind.FETCH)))
    assert marks_within(raw, 250) == marks(*STEP)
    assert marks_within(raw, None) == raw
    assert marks_within(raw, 400) == raw


def test_a_fact_is_no_moment():
    raw = marks(*STEP, (9999, SAMPLES), (220, enter(Kind.DATA)))
    assert marks_within(raw, 250) == raw


def test_samples_after_the_window_are_cut_off():
    raw = array("q", [(microseconds << LINE_BITS) | 5 for microseconds in (10, 20, 30)])
    assert samples_within(raw, 20_000) == raw[:2]
    assert samples_within(raw, None) == raw
