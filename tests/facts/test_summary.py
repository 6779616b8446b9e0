from __future__ import annotations

from dataclasses import replace

import pytest

from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Ending, ProbeCost, Runtime, Stage, Steps, Timeline, Warmup

MS = 1_000_000


def timeline(data, forward, other, samples=None, tokens=None, padded=None, steady=0):
    walls = [sum(parts) * MS for parts in zip(data, forward, other, strict=True)]
    count = len(walls)
    unseen = [-1] * count
    stages = {Stage.DATA: data, Stage.FORWARD: forward, Stage.OTHER: other}
    steps = Steps(
        start=[sum(walls[:index]) for index in range(count)],
        wall=walls,
        stages={stage: [value * MS for value in column] for stage, column in stages.items()},
        samples=samples or unseen,
        tokens=tokens or unseen,
        padded=padded or unseen,
        micro=[1] * count,
    )
    return Timeline(
        rank=0,
        world=1,
        pid=1,
        ending=Ending.FINISHED,
        steps=steps,
        steady_from=steady,
        warmup=Warmup(1.0, steady, 0.0),
        runtime=Runtime(threads=1),
        probe=ProbeCost(0.0, 0.0, 0.0, 0),
    )


def test_stages_add_up_to_the_mean_step():
    summary = summarise(timeline([10, 20, 60], [30, 30, 30], [10, 10, 10]))
    assert summary.n == 3
    assert summary.step_ms == pytest.approx(70.0)
    assert sum(each.ms for each in summary.stages.values()) == pytest.approx(summary.step_ms)
    assert summary.stages[Stage.DATA].ms == pytest.approx(30.0)
    assert summary.stages[Stage.DATA].share == pytest.approx(90 / 210)
    assert summary.stages[Stage.DATA].p50_ms == pytest.approx(20.0)
    assert summary.stages[Stage.DATA].p95_ms == pytest.approx(56.0)
    assert summary.step_ms_median == pytest.approx(60.0)
    assert summary.coverage == pytest.approx(1 - 30 / 210)
    assert summary.steps_per_s == pytest.approx(3 / 0.21)


def test_an_exchange_between_two_stages_has_a_name():
    seen = replace(timeline([10, 20, 60], [30, 30, 30], [10, 10, 10]), comm_stages={Stage.OTHER: 0.02})
    assert summarise(seen).coverage == pytest.approx(1 - 10 / 210)


def test_warm_up_is_left_out():
    summary = summarise(timeline([5000, 10, 10], [30, 30, 30], [0, 0, 0], steady=1))
    assert (summary.n, summary.step_ms) == (2, pytest.approx(40.0))
    assert summary.seconds == pytest.approx(0.08)


@pytest.mark.parametrize("steady", [2, 3])
def test_without_a_steady_step_nothing_is_zero(steady):
    summary = summarise(timeline([10, 10], [30, 30], [0, 0], steady=steady))
    assert summary.n == 0
    assert summary.steps_per_s is None
    assert summary.step_ms is None
    assert summary.step_ms_median is None
    assert summary.coverage is None
    assert summary.share(Stage.DATA, Stage.FORWARD) == 0.0


def test_what_was_not_counted_has_no_rate():
    summary = summarise(timeline([10, 10], [30, 30], [10, 10]))
    assert (summary.samples_per_s, summary.tokens_per_s, summary.padding_share) == (None, None, None)


def test_rates_are_of_the_steps_that_were_counted():
    seen = timeline([10, 10], [30, 30], [10, 60], samples=[32, -1], tokens=[600, 300], padded=[200, 100])
    summary = summarise(seen)
    assert summary.samples_per_s == pytest.approx(32 / 0.05)
    assert summary.tokens_per_s == pytest.approx(900 / 0.15)
    assert summary.padding_share == pytest.approx(0.25)


def test_a_stage_that_never_ran_holds_nothing():
    summary = summarise(timeline([10], [30], [0]))
    assert summary.share(Stage.VALIDATE) == 0.0
    assert summary.ms(Stage.DATA, Stage.FORWARD, Stage.VALIDATE) == pytest.approx(40.0)


def test_columns_may_be_arrays():
    from array import array

    seen = timeline([10, 20], [30, 30], [0, 0])
    stages = {stage: array("q", column) for stage, column in seen.steps.stages.items()}
    steps = replace(seen.steps, wall=array("q", seen.steps.wall), stages=stages)
    assert summarise(replace(seen, steps=steps)) == summarise(seen)
