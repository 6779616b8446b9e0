"""What the steps after the window tell: of free input, and of other numbers of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

from hotlap.facts.timeline import Rehearsal
from hotlap.stats.quantile import quantile

_RANKS_95 = 0.98  # half of 1.96 standard deviations of the rank of a median, times the root of the count


def free_input(facts: Mapping[str, Any]) -> float | None:
    """Seconds of a step with free input: the median; None where none was made."""
    walls = facts.get("free_input_ns")
    return quantile(walls, 0.5) / 1e9 if walls else None


def free_input_range(facts: Mapping[str, Any]) -> tuple[float, ...]:
    """Both ends of the interval of that median, from its rank."""
    walls = facts.get("free_input_ns")
    if not walls:
        return ()
    reach = min(0.5, _RANKS_95 / sqrt(len(walls)))
    return tuple(quantile(walls, 0.5 + each) / 1e9 for each in (-reach, reach))


def rehearsals(facts: Mapping[str, Any]) -> tuple[Rehearsal, ...]:
    """A mean, not a median: behind a queue short steps and long ones take turns."""
    return tuple(_rehearsal(workers, walls) for workers, walls in facts.get("rehearsals", ()))


def _rehearsal(workers: int, walls: Sequence[int]) -> Rehearsal:
    average = mean(walls)
    return Rehearsal(workers, average / 1e9, stdev(walls) / sqrt(len(walls)) / average)
