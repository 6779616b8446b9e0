"""How much faster, and what becomes of it."""

from __future__ import annotations

import pytest

from hotlap.facts.diagnosis import Interval
from hotlap.facts.trial import Figures
from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import (
    all_of,
    beats,
    beside_blocks,
    break_even,
    enough,
    gain_of,
    gain_of_rounds,
    rule,
    rule_closely,
    rule_simpler,
)
from hotlap.measure.contest import scatter_of_rounds
from hotlap.stats.compare import Scatter


def figures(step_ms, compile_s=0.0, samples=None):
    return Figures(1e3 / step_ms, "steps", step_ms, 0.0, samples, None, 1.0, compile_s, 1.0, None, 50)


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (None, Ruling.UNDECIDED),
        (Gain(0.5, Interval(0.4, 0.6)), Ruling.KEEP),
        (Gain(0.5, Interval(-0.1, 1.5)), Ruling.UNDECIDED),
        (Gain(0.02, Interval(0.01, 0.025)), Ruling.DROP),
        (Gain(-0.2, Interval(-0.3, -0.1)), Ruling.DROP),
    ],
)
def test_what_becomes_of_a_gain(gain, expected):
    assert rule(gain) is expected


def test_blocks_and_runs_are_weighed_by_how_closely_each_is_known():
    runs, blocks = Gain(-0.05, Interval(-0.25, 0.2), 2), Gain(0.10, Interval(0.05, 0.15), 18)
    both = beside_blocks(runs, blocks)
    assert 0.08 < both.value < blocks.value
    assert 0.03 < both.interval.low < both.interval.high < 0.15
    assert both.trials == 20
    assert rule(both) is Ruling.KEEP
    alike = beside_blocks(blocks, blocks)
    assert alike.value == pytest.approx(blocks.value)
    assert alike.interval.high - alike.interval.low == pytest.approx(0.1 / 2**0.5, rel=0.05)


def test_where_runs_contradict_blocks_the_runs_are_right():
    runs, blocks = Gain(-0.2, Interval(-0.25, -0.15), 4), Gain(0.10, Interval(0.05, 0.15), 18)
    assert beside_blocks(runs, blocks) is runs
    assert beside_blocks(runs, None) is runs
    assert beside_blocks(None, blocks) is None  # blocks alone keep nothing


def test_gains_beside_each_other_multiply():
    one, other = Gain(0.5, Interval(0.4, 0.6), 6), Gain(0.2, Interval(0.1, 0.3), 6)
    both = all_of([one, other])
    assert both.value == pytest.approx(0.8)
    assert both.interval.low < 1.4 * 1.2 - 1 < both.value < 1.6 * 1.2 - 1 < both.interval.high
    assert all_of([one]).interval.high == pytest.approx(0.6, abs=0.01)


def test_a_single_run_of_each_says_nothing_unless_the_scatter_is_known():
    assert gain_of([100.0], [150.0], None, final=True) is None
    known = gain_of([100.0], [150.0], Scatter(0.0004, 6), final=True)
    assert known.value == pytest.approx(0.5)
    assert 0.35 < known.interval.low < known.value < known.interval.high < 0.7


def test_who_may_look_again_is_asked_for_more():
    looks = [gain_of([100, 101, 99], [110, 111, 109], None, final=final) for final in (False, True)]
    assert looks[0].interval.low < looks[1].interval.low


def test_steps_until_compiling_is_paid_back():
    assert break_even(figures(10.0), figures(8.0, compile_s=4.0)) == 2000
    assert break_even(figures(10.0), figures(11.0, compile_s=4.0)) is None
    assert break_even(figures(10.0), figures(8.0)) is None


def test_a_larger_batch_is_paid_back_by_samples():
    assert break_even(figures(10.0, samples=8), figures(16.0, compile_s=2.0, samples=16)) == 1000


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (None, Ruling.UNDECIDED),
        (Gain(0.0, Interval(-0.02, 0.02)), Ruling.KEEP),
        (Gain(-0.02, Interval(-0.05, 0.01)), Ruling.UNDECIDED),
        (Gain(-0.1, Interval(-0.15, -0.05)), Ruling.DROP),
    ],
)
def test_the_tie_goes_to_the_simpler(gain, expected):
    assert rule_simpler(gain) is expected


def test_a_winner_beats_more_than_the_noise():
    assert beats(Gain(0.05, Interval(0.01, 0.09)))
    assert not beats(Gain(0.05, Interval(-0.01, 0.11)))
    assert not beats(None)


def test_a_warm_cache_does_not_shorten_what_compiling_takes():
    assert break_even(figures(10.0), figures(8.0, compile_s=0.1), compile_s=4.0) == 2000


@pytest.mark.parametrize(
    ("gain", "expected"),
    [
        (None, Ruling.UNDECIDED),
        (Gain(0.2, Interval(0.1, 0.3)), Ruling.UNDECIDED),
        (Gain(0.2, Interval(0.17, 0.23)), Ruling.KEEP),
        (Gain(4.0, Interval(3.7, 4.3)), Ruling.KEEP),  # a tenth of the gain is close enough
        (Gain(-0.2, Interval(-0.22, -0.18)), Ruling.DROP),
    ],
)
def test_a_gain_that_is_shown_is_known_closely(gain, expected):
    assert rule_closely(gain) is expected


@pytest.mark.parametrize(
    ("value", "par", "rounds"),
    [(None, 0.0, 4), (-0.01, 0.0, 2), (0.01, 0.0, 4), (0.05, 0.0, 8), (-0.01, -0.03, 4), (-0.05, -0.03, 2)],
)
def test_a_duel_goes_on_as_long_as_it_may_be_worth_it(value, par, rounds):
    gain = None if value is None else Gain(value, Interval(value - 0.1, value + 0.1))
    assert next(made for made in range(1, 10) if enough(made, gain, par)) == rounds


def test_rounds_that_agree_tell_more_than_runs_that_do_not():
    before, after = [100.0, 60.0, 120.0, 80.0], [110.0, 66.5, 131.0, 88.0]
    by_runs = gain_of(before, after, None, final=True)
    ratios = [new / old for old, new in zip(before, after, strict=True)]
    by_rounds = gain_of_rounds(ratios, Scatter(0.0002, 7), final=True)
    assert by_rounds.value == pytest.approx(by_runs.value)
    assert not beats(by_runs)
    assert beats(by_rounds)


def test_a_machine_that_changes_its_pace_does_not_hide_a_gain():
    """printer_tcn with and without batched-fetch, run after run: the machine had two paces, a quarter apart, and twice
    it changed between the two runs of a round."""
    with_it = [23.3, 30.1, 30.3, 23.6, 23.5, 23.8, 30.1, 29.5]
    without = [33.7, 33.9, 25.8, 26.1, 26.5, 25.9, 33.4, 33.9]
    ratios = [slow / quick for slow, quick in zip(without, with_it, strict=True)]
    scatter = scatter_of_rounds([ratios])
    assert rule(gain_of_rounds(ratios[:7], scatter, final=False)) is Ruling.UNDECIDED
    found = gain_of_rounds(ratios, scatter, final=False)
    assert rule(found) is Ruling.KEEP
    assert found.value == pytest.approx(0.12, abs=0.01)
