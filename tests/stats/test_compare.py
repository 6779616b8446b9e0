from __future__ import annotations

import math
import random

import pytest

from hotlap.errors import FactError
from hotlap.stats.compare import Scatter, pooled, ratio, repeated, trimmed, within_rounds


def test_the_ratio_is_of_geometric_means():
    found = ratio([100.0, 102.0, 98.0], [150.0, 153.0, 147.0])
    assert found.value == pytest.approx(1.5)
    assert found.low < 1.5 < found.high
    assert found.decided


def test_the_same_sample_twice_shows_no_difference():
    found = ratio([10.0, 11.0, 9.0, 10.5], [10.0, 11.0, 9.0, 10.5])
    assert found.value == 1.0
    assert not found.decided


def test_the_interval_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    before, after = [10.0, 11.0, 9.0, 10.5, 9.7], [12.0, 15.0, 13.1, 12.2]
    interval = stats.ttest_ind(
        [math.log(rate) for rate in after], [math.log(rate) for rate in before], equal_var=False
    ).confidence_interval(0.95)
    found = ratio(before, after)
    assert math.log(found.low) == pytest.approx(interval.low, abs=0.003)
    assert math.log(found.high) == pytest.approx(interval.high, abs=0.003)


def test_an_a_a_comparison_is_undecided_about_95_times_in_100():
    draw = random.Random(3)
    decided = sum(
        ratio(
            [draw.lognormvariate(0, 0.1) for _ in range(5)], [draw.lognormvariate(0, 0.1) for _ in range(5)]
        ).decided
        for _ in range(1000)
    )
    assert 20 <= decided <= 85


def test_samples_without_scatter_give_a_point():
    found = ratio([2.0, 2.0], [3.0, 3.0])
    assert (found.low, found.high) == (pytest.approx(1.5), pytest.approx(1.5))


@pytest.mark.parametrize("rates", [[1.0], [], [1.0, 0.0], [1.0, -2.0]])
def test_too_little_is_refused(rates):
    with pytest.raises(FactError, match="at least two positive rates"):
        ratio(rates, [1.0, 2.0])


def test_what_is_usual_keeps_two_runs_that_agree_from_passing_for_certainty():
    assert pooled([[100.0], [200.0]]) is None
    alone = pooled([[100.0, 100.0]])
    beside = pooled([[100.0, 100.0]], Scatter(0.02**2, 4))
    assert (alone.variance, alone.freedom) == (0.0, 1)
    assert beside.freedom == 5
    assert beside.variance == pytest.approx(4 / 5 * 0.02**2)


def test_ratios_taken_side_by_side_hold_the_truth_as_often_as_they_say():
    draw = random.Random(1)
    inside = 0
    for _ in range(300):
        groups = [[1.2 * math.exp(draw.gauss(0, 0.05)) for _ in range(3)] for _ in range(4)]
        found = repeated(groups[0], pooled(groups), 0.95)
        inside += found.low <= 1.2 <= found.high
    assert 270 <= inside <= 299


def test_ratios_without_their_extremes_agree_with_scipy():
    stats = pytest.importorskip("scipy.stats.mstats")
    ratios = [1.45, 1.13, 0.85, 1.11, 1.13, 1.09, 1.11, 1.15]
    logs = [math.log(each) for each in ratios]
    low, high = stats.trimmed_mean_ci(logs, limits=(0.125, 0.125), alpha=0.01)
    found = trimmed(ratios, 0.99)
    assert math.log(found.low) == pytest.approx(low, abs=0.003)
    assert math.log(found.high) == pytest.approx(high, abs=0.003)
    assert found.decided and not repeated(ratios, pooled([ratios]), 0.99).decided


def test_ratios_without_their_extremes_hold_the_truth_as_often_as_they_say():
    draw = random.Random(2)
    found = [trimmed([1.2 * math.exp(draw.gauss(0, 0.05)) for _ in range(6)], 0.95) for _ in range(400)]
    assert 365 <= sum(each.low <= 1.2 <= each.high for each in found) <= 395


def test_what_a_round_does_to_all_of_its_rates_is_no_scatter():
    levels = [1.0, 2.0, 0.5, 1.3]
    first, second = [100 * level for level in levels], [90 * level for level in levels]
    found = within_rounds([first, second, first])
    assert found is not None
    assert found.freedom == 6
    assert found.variance == pytest.approx(0.0, abs=1e-12)


def test_two_groups_in_rounds_are_a_paired_t_test():
    stats = pytest.importorskip("scipy.stats")
    before, after = [10.0, 11.0, 9.0, 10.5, 9.7], [12.0, 14.0, 11.1, 12.2, 11.3]
    logs = [[math.log(rate) for rate in rates] for rates in (after, before)]
    interval = stats.ttest_rel(*logs).confidence_interval(0.99)
    scatter = within_rounds([before, after])
    assert scatter is not None
    found = repeated([late / early for early, late in zip(before, after, strict=True)], scatter)
    assert math.log(found.low) == pytest.approx(interval.low, abs=0.003)
    assert math.log(found.high) == pytest.approx(interval.high, abs=0.003)


def test_rounds_of_a_thing_with_itself_are_undecided_about_99_times_in_100():
    draw = random.Random(5)

    def decided() -> bool:
        levels = [draw.lognormvariate(0, 0.3) for _ in range(4)]
        groups = [[level * draw.lognormvariate(0, 0.02) for level in levels] for _ in range(3)]
        scatter = within_rounds(groups)
        assert scatter is not None
        ratios = [after / before for before, after in zip(groups[0], groups[1], strict=True)]
        return repeated(ratios, scatter).decided

    assert 2 <= sum(decided() for _ in range(1000)) <= 22


def test_a_single_round_tells_nothing_of_the_scatter():
    assert within_rounds([[1.0], [2.0]]) is None
    assert within_rounds([[1.0, 2.0]]) is None
