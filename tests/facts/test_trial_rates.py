"""Throughput by samples, tokens and steps, and which of them is steadiest."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from hotlap.facts.trial import Rate, rates_of, steadiest

MS = 1_000_000


def seen(walls_ms, samples, tokens, steady_from=0):
    steps = SimpleNamespace(wall=[round(each * MS) for each in walls_ms], samples=samples, tokens=tokens)
    return SimpleNamespace(steps=steps, steady_from=steady_from)


def job(steps=40, batch=2, fixed_ms=20.0, *, padded=None):
    """Clips of 1 to 60 s: a step takes as long as the longest of its batch, or as all are padded to."""
    draw = random.Random(7)
    clips = [[min(60.0, max(1.0, draw.lognormvariate(0.8, 0.9))) for _ in range(batch)] for _ in range(steps)]
    walls = [fixed_ms + 10 * batch * (padded or max(each)) * draw.gauss(1, 0.02) for each in clips]
    return seen(walls, [batch] * steps, [round(sum(each) * 1000) for each in clips])


def test_rates_are_of_the_steady_steps_and_of_those_that_were_counted():
    found = rates_of(seen([1000, 10, 10, 20], [8, 8, 8, 8], [-1, 50, -1, 70], steady_from=1))
    assert {name: each.per_s for name, each in found.items()} == pytest.approx(
        {"samples": 600.0, "tokens": 4000.0, "steps": 75.0}
    )


def test_the_scatter_is_that_of_the_mean():
    """What many runs of one job show between each other, one of them tells by its steps."""
    draw = random.Random(3)
    runs = [rates_of(seen([draw.gauss(10, 2) for _ in range(50)], [4] * 50, [-1] * 50)) for _ in range(300)]
    rates = [each["samples"].per_s for each in runs]
    mean = sum(rates) / len(rates)
    between = (sum((each - mean) ** 2 for each in rates) / len(rates)) ** 0.5 / mean
    assert sum(each["samples"].scatter for each in runs) / len(runs) == pytest.approx(between, rel=0.15)


@pytest.mark.parametrize("batch", [2, 8])
def test_clips_of_many_lengths_are_steadier_by_tokens(batch):
    assert steadiest(rates_of(job(batch=batch))) == "tokens"


@pytest.mark.parametrize(
    "timeline",
    [
        job(padded=60.0),
        seen([10, 11, 10, 12] * 5, [8] * 20, [512] * 20),
        seen([10, 11, 10, 12] * 5, [8] * 20, [-1] * 20),
        seen([10, 30], [8, 8], [-1, 900]),
    ],
    ids=["all-padded-to-one-length", "one-length", "no-tokens", "counted-once"],
)
def test_else_samples_are_counted(timeline):
    assert steadiest(rates_of(timeline)) == "samples"


def test_steps_are_counted_where_batches_show_nothing():
    found = rates_of(seen([10, 12, 11], [-1] * 3, [-1] * 3))
    assert found.keys() == {"steps"}
    assert steadiest(found) == "steps"


def test_tokens_must_be_clearly_steadier():
    by = {"samples": Rate(10.0, 0.10), "steps": Rate(1.0, 0.10)}
    assert steadiest({**by, "tokens": Rate(99.0, 0.095)}) == "samples"
    assert steadiest({**by, "tokens": Rate(99.0, 0.08)}) == "tokens"
    assert steadiest({**by, "tokens": Rate(99.0, None)}) == "samples"
