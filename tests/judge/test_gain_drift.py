"""Runs of two days: what the job changed is told from what the machine changed."""

from __future__ import annotations

import pytest

from hotlap.facts.baseline import Baseline, MachineIdentity, Standing
from hotlap.facts.trial import Figures
from hotlap.judge.gain import check

FIGURES = Figures(1000.0, "samples", 8.0, 2.0, 8.0, 512 << 20, 0.75, 0.0, 1.0, 0.0, 60)
QUIET = (0.99, 1.0, 1.01, 1.0)
LOUD = (0.6, 1.4, 0.8, 1.2)


def day(rate, pace=10.0, spread=QUIET):
    rates = tuple(rate * each for each in spread)
    paces = tuple(pace * each for each in reversed(spread)) if pace else ()
    return Baseline(
        "python train.py", MachineIdentity("cpu", 2, "x86_64"), "2026-11-16", rates, paces, FIGURES
    )


@pytest.mark.parametrize(
    ("rate", "pace", "standing"),
    [
        (1000.0, 10.0, Standing.SAME),
        (980.0, 10.0, Standing.SAME),  # slower, and tolerated
        (800.0, 10.0, Standing.SLOWER),
        (800.0, 8.0, Standing.NOT_DECIDED),  # the machine lost as much
        (700.0, 8.5, Standing.SLOWER),  # the machine lost something, the job lost more
        (1000.0, 12.5, Standing.NOT_DECIDED),  # a faster machine hides what the job lost
        (1300.0, 10.0, Standing.FASTER),
        (1300.0, 13.0, Standing.SAME),  # the machine's merit
    ],
)
def test_how_today_stands(rate, pace, standing):
    assert check(day(1000.0), day(rate, pace), 0.05).standing is standing


def test_runs_that_scatter_decide_nothing():
    found = check(day(1000.0), day(900.0, spread=LOUD), 0.05)
    assert found.standing is Standing.NOT_DECIDED
    assert "scatter" in found.reason


def test_without_a_pace_the_rates_alone_decide_and_the_drift_is_not_known():
    found = check(day(1000.0, None), day(800.0, None), 0.05)
    assert found.standing is Standing.SLOWER
    assert found.drift is None and found.beside is None


def test_the_figures_are_those_of_the_days():
    found = check(day(1000.0), day(800.0, 8.0), 0.05)
    assert found.ratio.value == pytest.approx(0.8)
    assert found.drift is not None and found.drift.value == pytest.approx(0.8)
    assert found.beside is not None and found.beside.value == pytest.approx(1.0)
    assert found.beside.interval.low < 1.0 < found.beside.interval.high
