from __future__ import annotations

import pytest

from hotlap.errors import FactError
from hotlap.stats.robust import median, of_ordered, quantile


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [([3], 0.5, 3), ([1, 2], 0.5, 1.5), ([4, 1, 3, 2], 0.25, 1.75), ([5, 1, 3], 1.0, 5), ([5, 1, 3], 0.0, 1)],
)
def test_linear_interpolation(values, share, expected):
    assert quantile(values, share) == expected


def test_it_agrees_with_numpy():
    numpy = pytest.importorskip("numpy")
    values = numpy.random.default_rng(0).lognormal(size=101).tolist()
    for share in (0.05, 0.5, 0.9, 0.99):
        assert quantile(values, share) == pytest.approx(float(numpy.quantile(values, share)))


def test_the_input_is_left_alone():
    values = [3, 1, 2]
    assert median(values) == 2
    assert values == [3, 1, 2]


def test_nothing_has_no_median_and_a_share_is_a_share():
    with pytest.raises(FactError, match="no values"):
        median([])
    with pytest.raises(FactError, match="between 0 and 1"):
        of_ordered([1.0], 95)
