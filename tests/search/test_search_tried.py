"""Second tries: who gets one, and that they end."""

from __future__ import annotations

import pytest

from hotlap.facts.diagnosis import Interval
from hotlap.facts.verdict import Gain
from hotlap.search.search import Tried

KEY = ("batch-size", "8")


def gain(value):
    return Gain(value, Interval(value - 0.02, value + 0.02))


def missed(first):
    tried = Tried()
    tried.begin(KEY, 0.2)
    tried.miss(KEY, gain(first))
    return tried


@pytest.mark.parametrize(
    ("first", "faster", "again"), [(0.0, 0.2, True), (0.0, 0.05, False), (-0.2, 0.5, False)]
)
def test_another_try_follows_where_the_incumbent_has_changed_and_it_was_not_far_behind(first, faster, again):
    tried = missed(first)
    tried.advance(gain(faster))
    assert (KEY not in tried.promises) is again


def test_small_gains_add_up():
    tried = missed(0.0)
    for _ in range(2):
        tried.advance(gain(0.06))
    assert KEY not in tried.promises


@pytest.mark.parametrize("second", [None, -0.2])
def test_what_died_or_was_far_behind_in_its_second_try_has_no_third(second):
    tried = missed(0.0)
    tried.advance(gain(0.2))
    tried.begin(KEY, 0.2)
    tried.miss(KEY, None if second is None else gain(second))
    tried.advance(gain(1.0))
    assert KEY in tried.promises and not tried.has_missed(KEY)
