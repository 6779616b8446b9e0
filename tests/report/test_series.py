"""Short columns keep the totals, the stalls and their bounds."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import Gauge, Stage, Steps
from hotlap.report import series


def test_a_short_run_is_drawn_step_by_step(timeline_of):
    timeline = timeline_of({"data": 2.0, "forward": 3.0}, 50)
    drawn = series.of_steps(timeline)
    assert drawn["bucket"] == 1 and drawn["step"] == list(range(50))
    assert drawn["wall"]["max_ms"] == pytest.approx([wall / 1e6 for wall in timeline.steps.wall], rel=1e-4)


@pytest.mark.parametrize("count", [2000, 2001, 54_321])
def test_a_long_run_has_few_points_and_the_same_mean(timeline_of, count):
    timeline = timeline_of({"data": 2.0, "forward": 3.0}, count)
    drawn = series.of_steps(timeline)
    means = drawn["stages"]["data"]["mean_ms"]
    assert len(means) == len(drawn["step"]) == len(drawn["t_s"]) <= series.POINTS
    sizes = [min(drawn["bucket"], count - first) for first in drawn["step"]]
    total = sum(mean * size for mean, size in zip(means, sizes, strict=True))
    assert total * 1e6 == pytest.approx(sum(timeline.steps.stages["data"]), rel=1e-3)


def test_a_single_stall_in_a_hundred_thousand_steps_stays_visible():
    count = 100_000
    wall = [1_000_000] * count
    wall[77_777] = 5_000_000_000
    none = [-1] * count
    timeline = _Seen(Steps(range(count), wall, {Stage.DATA: wall}, none, none, none, none))
    drawn = series.of_steps(timeline)
    where = 77_777 // drawn["bucket"]
    assert drawn["stages"]["data"]["max_ms"][where] == drawn["wall"]["max_ms"][where] == 5000
    assert sorted(drawn["wall"]["max_ms"])[-2] == 1


def test_stages_that_never_ran_are_left_out(timeline_of):
    timeline = timeline_of({"data": 2.0, "log": 0.0}, 20)
    assert set(series.of_steps(timeline)["stages"]) == {"data"}
    assert set(series.trace(timeline, 1)["stages"]) == {"data"}


def test_no_step_gives_empty_columns(timeline_of):
    empty = timeline_of({"data": 1.0}, 0, gauges=())
    assert series.of_steps(empty)["step"] == []
    assert series.trace(empty, 1)["step"] == []


def test_gauges_keep_their_peak_and_say_nothing_of_a_missing_gpu():
    gauges = [Gauge(index, 10 if index != 777 else 999, 1.0, 0.5, 0.0, 0.0) for index in range(4000)]
    drawn = series.of_gauges(gauges)
    assert max(drawn["rss"]) == 999 and len(drawn["rss"]) <= series.GAUGE_POINTS
    assert drawn["cpu"][0] == 1.0 and drawn["cuda_allocated"] is None and drawn["gpu_busy"] is None
    assert series.of_gauges([]) is None


def test_a_trace_keeps_the_ends_and_the_longest_steps(timeline_of):
    timeline = timeline_of({"data": 2.0}, 20_000, stall_every=3_333)
    kept = series.trace(timeline, 2)
    assert len(kept["step"]) <= series.TRACE_STEPS // 2
    assert {0, 1, 19_998, 19_999, 3_333, 6_666, 9_999} <= set(kept["step"])
    assert kept["left_out"] == 20_000 - len(kept["step"])
    assert kept["wall"][0] == timeline.steps.wall[0]


class _Seen:
    """A timeline of which only the steps matter."""

    steady_from = 0

    def __init__(self, steps: Steps) -> None:
        self.steps = steps
