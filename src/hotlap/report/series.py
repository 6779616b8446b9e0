"""Long columns made short enough to draw: bucket means for the shape, bucket maxima so that stalls show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import nlargest
from typing import Any

from hotlap.facts.timeline import Gauge, Steps, Timeline
from hotlap.units import NS_PER_MS, NS_PER_S

# A plot is about 1,000 pixels wide: 2,000 points are sharp on a fine screen and keep the report small.
POINTS = 2000
GAUGE_POINTS = 500
# Steps of a trace over all ranks: about ten events each, which a trace viewer opens at once.
TRACE_STEPS = 6000


def of_steps(timeline: Timeline) -> dict[str, Any]:
    """Mean and maximum of each stage and of the whole step, in ms, per bucket of `bucket` steps."""
    steps = timeline.steps
    bucket = max(1, math.ceil(len(steps) / POINTS))
    firsts = range(0, len(steps), bucket)
    return {
        "bucket": bucket,
        "steady_from": timeline.steady_from,
        "step": list(firsts),
        "t_s": [_short(steps.start[first] / NS_PER_S) for first in firsts],
        "wall": _bucketed(steps.wall, bucket),
        "stages": {
            stage.value: _bucketed(column, bucket) for stage, column in steps.stages.items() if any(column)
        },
    }


def of_gauges(gauges: Sequence[Gauge]) -> dict[str, Any] | None:
    """Memory (the highest of each bucket) and CPU use (the mean of each bucket) over time."""
    if not gauges:
        return None
    bucket = max(1, math.ceil(len(gauges) / GAUGE_POINTS))
    groups = [gauges[first : first + bucket] for first in range(0, len(gauges), bucket)]
    return {
        "t_s": [_short(group[0].t / NS_PER_S) for group in groups],
        "rss": [max(each.rss for each in group) for group in groups],
        "cuda_allocated": _highest(groups, "cuda_allocated"),
        "cuda_reserved": _highest(groups, "cuda_reserved"),
        "cpu": _means(groups, "cpu"),
        "workers_cpu": _means(groups, "workers_cpu"),
        "foreign_cpu": _means(groups, "foreign_cpu"),
        "iowait": _means(groups, "iowait"),
        "gpu_busy": _means(groups, "gpu_busy"),
    }


def trace(timeline: Timeline, ranks: int) -> dict[str, Any]:
    """Single steps of a rank in ns, exact: all, or the first, the longest and the last of a long run."""
    steps = timeline.steps
    kept = _kept(steps, max(30, TRACE_STEPS // ranks))
    return {
        "rank": timeline.rank,
        "pid": timeline.pid,
        "left_out": len(steps) - len(kept),
        "step": kept,
        "start": [steps.start[index] for index in kept],
        "wall": [steps.wall[index] for index in kept],
        "stages": {
            stage.value: [column[index] for index in kept]
            for stage, column in steps.stages.items()
            if any(column)
        },
    }


def _kept(steps: Steps, most: int) -> list[int]:
    if len(steps) <= most:
        return list(range(len(steps)))
    third = most // 3
    ends = {*range(third), *range(len(steps) - third, len(steps))}
    longest = nlargest(third, range(third, len(steps) - third), key=steps.wall.__getitem__)
    return sorted(ends.union(longest))


def _bucketed(column: Sequence[int], bucket: int) -> dict[str, list[float]]:
    if bucket == 1:
        exact = [_short(value / NS_PER_MS) for value in column]
        return {"mean_ms": exact, "max_ms": exact}
    groups = [column[first : first + bucket] for first in range(0, len(column), bucket)]
    return {
        "mean_ms": [_short(sum(group) / len(group) / NS_PER_MS) for group in groups],
        "max_ms": [_short(max(group) / NS_PER_MS) for group in groups],
    }


def _highest(groups: Sequence[Sequence[Gauge]], name: str) -> list[int | None] | None:
    found = [[value for each in group if (value := getattr(each, name)) is not None] for group in groups]
    return [max(values) if values else None for values in found] if any(found) else None


def _means(groups: Sequence[Sequence[Gauge]], name: str) -> list[float | None] | None:
    found = [[value for each in group if (value := getattr(each, name)) is not None] for group in groups]
    return [_short(sum(values) / len(values)) if values else None for values in found] if any(found) else None


def _short(value: float) -> float:
    """Five digits are more than a plot shows, and half the bytes of a float written out."""
    return float(f"{value:.5g}")
