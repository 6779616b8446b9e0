"""Where the time of the last steps went, from the end of a file of marks."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from hotlap.stats.quantile import of_ordered
from hotlap.units import NS_PER_S

Fold = Callable[[Sequence[int]], Any]
_FIRST_LOOK = 1 << 12  # marks: folding them takes some ten milliseconds
_ENOUGH = 20  # steps
_LATELY_S = 10.0


def lately(recent: array[int], fold: Fold) -> dict[str, Any] | None:
    """Rate, step time and stages of the last seconds; None before two whole steps were seen."""
    size = _FIRST_LOOK
    steps: Any = None
    while True:
        steps = fold(recent[-size:]).columns.steps()
        if len(steps) > _ENOUGH or size >= len(recent):
            break
        size *= 4
    first = _first_of_lately(steps.wall)
    walls = steps.wall[first:]
    if len(walls) < 1:
        return None
    return _described(steps, first, walls)


def _first_of_lately(walls: Sequence[int]) -> int:
    """The first step is not whole: the marks before it are cut off."""
    total, first = 0, len(walls)
    while first > 1 and (total < _LATELY_S * NS_PER_S or len(walls) - first < _ENOUGH):
        first -= 1
        total += walls[first]
    return first


def _described(steps: Any, first: int, walls: Sequence[int]) -> dict[str, Any]:
    seconds = sum(walls) / NS_PER_S
    ordered = sorted(walls)
    samples = [each for each in steps.samples[first:] if each >= 0]
    stages = {
        str(stage): sum(times[first:]) / NS_PER_S / max(seconds, 1e-12)
        for stage, times in steps.stages.items()
    }
    return {
        "steps": len(walls),
        "seconds": seconds,
        "steps_per_s": len(walls) / max(seconds, 1e-12),
        "samples_per_s": sum(samples) / max(seconds, 1e-12) if len(samples) == len(walls) else None,
        "step_ms": of_ordered(ordered, 0.5) / 1e6,
        "p95_ms": of_ordered(ordered, 0.95) / 1e6,
        "stages": stages,
    }
