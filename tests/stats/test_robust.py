from __future__ import annotations

import random

import pytest

from hotlap.stats.robust import mad, slope, thin


def test_mad_is_the_standard_deviation_of_normal_noise_and_ignores_stalls():
    draw = random.Random(0)
    values = [draw.gauss(10, 2) for _ in range(4000)]
    assert mad(values) == pytest.approx(2, rel=0.1)
    assert mad(values + [1e6] * 40) == pytest.approx(2, rel=0.15)


def test_thinning_keeps_both_ends():
    kept = thin(range(10_000), 100)
    assert (len(kept), kept[0], kept[-1]) == (100, 0, 9999)
    assert thin([1, 2, 3], 100) == [1, 2, 3]


def test_a_slope_survives_a_fifth_of_outliers():
    draw = random.Random(1)
    ys = [3.0 * x + draw.uniform(-5, 5) + (1e5 if draw.random() < 0.2 else 0) for x in range(1000)]
    assert slope(range(1000), ys) == pytest.approx(3.0, rel=0.1)


def test_a_low_quantile_of_the_slopes_tells_growth_from_wandering():
    draw = random.Random(2)
    growing = [x + draw.uniform(-3, 3) for x in range(100)]
    wandering = [draw.uniform(0, 100) + 0.2 * x for x in range(100)]
    assert slope(range(100), growing, 0.1) > 0 > slope(range(100), wandering, 0.1)


def test_no_two_different_places_have_no_slope():
    assert slope([1.0, 1.0], [3.0, 9.0]) == 0.0
    assert slope([], []) == 0.0
