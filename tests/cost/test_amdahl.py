from __future__ import annotations

import pytest

from hotlap.cost.amdahl import gain, shrink
from hotlap.facts.diagnosis import Interval


@pytest.mark.parametrize(
    ("share", "saved", "expected"), [(0.5, 1.0, 1.0), (0.5, 0.5, 1 / 3), (0.0, 1.0, 0.0), (0.8, 0.0, 0.0)]
)
def test_the_rest_stays_as_it_is(share, saved, expected):
    assert gain(share, saved) == pytest.approx(expected)


def test_a_step_never_shrinks_to_nothing():
    assert gain(1.0, 1.0) == pytest.approx(49.0)


def test_an_interval_of_savings_gives_one_of_gains():
    found = shrink(0.6, Interval(0.2, 0.8))
    assert found.interval.low == pytest.approx(gain(0.6, 0.2))
    assert found.interval.high == pytest.approx(gain(0.6, 0.8))
    assert found.interval.low < found.gain < found.interval.high
