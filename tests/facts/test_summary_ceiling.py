"""What free input brings is set against a mean step, and figures that cannot be are called disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from hotlap.facts.summary import free_input, summarise
from hotlap.facts.timeline import (
    DatasetFacts,
    Ending,
    Gauge,
    LoaderFacts,
    ModelFacts,
    ProbeCost,
    Runtime,
    Stage,
    Steps,
    Timeline,
    Warmup,
)

MS = 1_000_000


def timeline(data: list[float], rest: list[float], **changes: Any) -> Timeline:
    """Steps in milliseconds."""
    walls = [round((one + other) * MS) for one, other in zip(data, rest, strict=True)]
    waited = [round(each * MS) for each in data]
    unseen = [-1] * len(walls)
    stages = {Stage.DATA: waited, Stage.FORWARD: [round(each * MS) for each in rest]}
    steps = Steps([0] * len(walls), walls, stages, unseen, unseen, unseen, [1] * len(walls))
    plain: dict[str, Any] = {
        "rank": 0,
        "world": 1,
        "pid": 1,
        "ending": Ending.WINDOW,
        "steps": steps,
        "steady_from": 0,
        "warmup": Warmup(1.0, 0, 0.0),
        "runtime": Runtime(threads=1),
        "probe": ProbeCost(0.0, 0.0, 0.0, 0),
    }
    return Timeline(**{**plain, **changes})


def measured(*given: Any, **changes: Any) -> Any:
    seen = timeline(*given, **changes)
    return free_input(seen, summarise(seen))


WORKERS = (LoaderFacts(DatasetFacts("Set", 100), 8, 2, 2, False, False),)


def test_what_was_not_measured_is_none():
    assert measured([30] * 20, [10] * 20) is None
    assert measured([30] * 20, [10] * 20, free_input_s=0.01, steady_from=20) is None


def test_the_gain_is_of_throughput_and_has_the_interval_of_the_measurement():
    seen = measured([30] * 20, [10] * 20, free_input_s=0.01, free_input_range_s=(0.008, 0.0125))
    assert seen.step_ms == pytest.approx(10)
    assert (seen.gain, seen.low, seen.high) == pytest.approx((3.0, 2.2, 4.0))
    assert not seen.disturbed


def test_without_a_range_there_is_none():
    seen = measured([30] * 20, [10] * 20, free_input_s=0.01)
    assert seen.low == seen.gain == seen.high


def test_stalls_of_the_other_stages_stay():
    """One step of twenty validates for 200 ms: 10 ms a step that free input does not save."""
    seen = measured([30] * 20, [10] * 19 + [210], free_input_s=0.01)
    assert seen.step_ms == pytest.approx(20)
    assert seen.gain == pytest.approx(50 / 20 - 1)


def test_rare_stalls_of_input_are_saved():
    """In the median nothing waits: workers deliver in bursts."""
    seen = measured([0] * 18 + [200] * 2, [10] * 20, free_input_s=0.01, loaders=WORKERS)
    assert seen.gain == pytest.approx(30 / 10 - 1)


def test_slower_without_input_than_with_it_is_disturbed():
    assert measured([30] * 20, [10] * 20, free_input_s=0.05, loaders=WORKERS).disturbed
    assert not measured([0.1] * 20, [10] * 20, free_input_s=0.0102, loaders=WORKERS).disturbed


def test_where_nothing_overlaps_free_input_leaves_the_rest_of_the_step():
    assert measured([30] * 20, [10] * 20, free_input_s=0.003).disturbed
    assert not measured([30] * 20, [10] * 20, free_input_s=0.005).disturbed
    assert measured([30] * 20, [10] * 20, free_input_s=0.02).disturbed
    assert not measured([30] * 20, [10] * 20, free_input_s=0.013).disturbed


@pytest.mark.parametrize(("foreign", "disturbed"), [(1.0, True), (0.1, False)], ids=["taken", "ours"])
def test_faster_than_beside_its_input_is_believed_only_where_nobody_else_took_the_machine(foreign, disturbed):
    """A neighbour that ended after the window makes steps faster, as waking up for good does."""
    gauges = (Gauge(0, 1 << 30, 1.0, 0.0, foreign, 0.0, cores=(0.9, 0.9)),)
    assert measured([30] * 20, [10] * 20, free_input_s=0.005, gauges=gauges).disturbed is disturbed
    assert not measured([30] * 20, [10] * 20, free_input_s=0.008, gauges=gauges).disturbed


@pytest.mark.parametrize(
    "changes",
    [{"loaders": WORKERS}, {"model": ModelFacts("Net", 1, 1, None, (), ("cuda:0",))}],
    ids=["workers", "device"],
)
def test_where_work_overlaps_the_rest_may_shrink_or_come_to_light(changes):
    assert not measured([30] * 20, [10] * 20, free_input_s=0.003, **changes).disturbed
    assert not measured([30] * 20, [10] * 20, free_input_s=0.03, **changes).disturbed
