from __future__ import annotations

import pytest

from hotlap.cost.ceiling import bounded, nearly_free
from hotlap.facts.ceiling import FreeInput
from hotlap.facts.diagnosis import Interval

MOST = FreeInput(step_ms=10.0, gain=3.0, low=2.5, high=3.5)


@pytest.mark.parametrize(
    ("gain", "interval", "then", "within"),
    [
        (1.0, (0.5, 1.5), 1.0, (0.5, 1.5)),
        (2.0, (1.0, 9.0), 2.0, (1.0, 3.5)),
        (5.0, (4.0, 6.0), 3.0, (3.0, 3.5)),
    ],
    ids=["below", "its interval reaches above", "above"],
)
def test_no_fix_of_input_brings_more_than_free_input(gain, interval, then, within):
    found = bounded(gain, Interval(*interval), MOST)
    assert (found.gain, found.interval) == (then, Interval(*within))


def test_where_free_input_brings_nothing_no_fix_of_it_does():
    found = bounded(0.4, Interval(0.1, 0.9), FreeInput(10.0, -0.02, -0.04, 0.01))
    assert (found.gain, found.interval) == (0.0, Interval(0.0, 0.01))


def test_what_is_left_of_input_is_still_paid():
    """40 ms now, 10 ms with free input: 2 ms of reading a cache make 12 ms."""
    found = nearly_free(MOST, 2.0)
    assert found.gain == pytest.approx(40 / 12 - 1)
    assert found.interval.low == pytest.approx(40 / (40 / 3.5 + 4) - 1)
    assert found.interval.high == pytest.approx(40 / (40 / 4.5 + 1) - 1)
    assert nearly_free(MOST, 0.0).gain == pytest.approx(3.0)
