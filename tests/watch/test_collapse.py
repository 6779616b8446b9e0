"""Verdicts on series of figures as trainings show them; the trainings themselves are in test_posterior.py."""

from __future__ import annotations

import math
import random

import pytest

from hotlap.watch.collapse import Detector, Posterior, State

HEALTHY, COLLAPSING, COLLAPSED = State.HEALTHY, State.COLLAPSING, State.COLLAPSED


def look(step, information, active=16, kl=None, units=16, gap=None):
    """A posterior of `units` dimensions, `active` of them with a variance of 1."""
    variances = tuple(1.0 if at < active else 0.0001 for at in range(units))
    total = information * 1.5 if kl is None else kl
    return Posterior(step, 256, tuple(total / units for _ in range(units)), variances, information, gap)


def states(series, detector=None, every=100):
    detector = detector or Detector()
    told = [
        detector.add(look(every * (at + 1), *each) if isinstance(each, tuple) else each)
        for at, each in enumerate(series)
    ]
    return [each.state for each in told], detector.verdict


def test_a_kl_that_is_flat_near_zero_from_the_start_is_found():
    noise = random.Random(0)
    series = [(abs(noise.gauss(0, 0.003)), 0, 0.001 * (1 + 0.1 * noise.random())) for _ in range(12)]
    told, verdict = states(series)
    assert told[:3] == [HEALTHY] * 3 and told[-1] is COLLAPSED
    assert COLLAPSING in told
    assert verdict.since == 100 and verdict.dimensions == tuple(range(16))
    assert "0 of 16 units active" in verdict.reason


def test_a_model_that_rises_slowly_out_of_nothing_is_not_called_collapsed():
    series = [(0.001 * 1.6**at, 0 if at < 9 else 4, 0.002 * 1.6**at) for at in range(16)]
    told, _ = states(series)
    assert set(told) == {HEALTHY}


def test_a_kl_that_falls_while_its_weight_is_warmed_up_is_no_collapse():
    series = [(max(3.2, 5.5 - 0.2 * at), 16 - at // 3, max(4.0, 60 * 0.7**at)) for at in range(30)]
    assert set(states(series)[0]) == {HEALTHY}


def test_units_that_are_never_used_are_named_and_are_no_collapse():
    told, verdict = states([(4.5, 5)] * 10)
    assert set(told) == {HEALTHY} and verdict.dimensions == tuple(range(5, 16))


def test_a_slow_fall_is_collapsing_before_it_is_collapsed():
    series = [(max(0.0, 5.0 - 0.2 * at), max(0, 16 - at * 2 // 3)) for at in range(40)]
    told, verdict = states(series)
    assert told[0] is HEALTHY and told[-1] is COLLAPSED
    first = told.index(COLLAPSING)
    assert series[first][0] > 1.0, "warned while there is something left to save"
    assert told.index(COLLAPSED) > first and HEALTHY not in told[first:]
    assert 1000 <= verdict.since <= 100 * (first + 1)


def test_a_model_that_recovers_is_healthy_again():
    told, _ = states([(0.01, 0, 0.01)] * 12 + [(0.5 * at, 4) for at in range(1, 9)])
    assert told[11] is COLLAPSED and told[-1] is HEALTHY


def test_a_decoder_that_does_not_look_at_z_is_told():
    noise = random.Random(1)
    unused = [look(at, 4.0, gap=noise.gauss(0.0, 0.002)) for at in range(30)]
    told, verdict = states(unused)
    assert told[0] is HEALTHY and told[-1] is COLLAPSING and "does not look at z" in verdict.reason
    noisy = [look(at, 4.0, gap=noise.gauss(0.02, 0.05)) for at in range(30)]
    assert set(states(noisy)[0]) == {HEALTHY}, "four rows make a noisy gap, and no alarm"


@pytest.mark.parametrize("window", [1, 3, 8, 50])
def test_any_window_finds_a_collapse_and_stays_small(window):
    detector = Detector(window)
    told, _ = states([(0.0, 0, 0.0)] * 200, detector)
    assert told[-1] is COLLAPSED
    assert len(detector._looks) <= window and len(detector._low) <= window


def test_wide_latents_with_a_single_noisy_unit_are_collapsed_all_the_same():
    told, _ = states([look(at, 0.03, active=3, kl=0.05, units=256) for at in range(12)])
    assert told[-1] is COLLAPSED


def test_figures_that_are_not_finite_are_no_health():
    bad = [Posterior(at, 256, (math.nan,) * 4, (math.nan,) * 4, math.nan) for at in range(12)]
    assert states(bad)[0][-1] is COLLAPSED
