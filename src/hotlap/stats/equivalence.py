"""Is a difference small enough not to matter? Two one-sided tests: the interval must lie within the margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.stats.compare import student

TWO_SIDED = 0.90  # an interval of 90 % is two one-sided tests at 5 % each


@dataclass(frozen=True)
class Equivalence:
    """The mean difference with the interval of two one-sided tests, and the margin that it was held against."""

    difference: float
    low: float
    high: float
    margin: float

    @property
    def same(self) -> bool:
        return -self.margin <= self.low and self.high <= self.margin

    @property
    def different(self) -> bool:
        return self.low > self.margin or self.high < -self.margin


def equivalence(differences: Sequence[float], margin: float) -> Equivalence:
    """Of paired differences. A single pair has no scatter of its own: nothing can be said of it."""
    count = len(differences)
    mean = sum(differences) / count
    if count < 2:
        return Equivalence(mean, -math.inf, math.inf, margin)
    variance = sum((each - mean) ** 2 for each in differences) / (count - 1)
    half = student(count - 1, TWO_SIDED) * math.sqrt(variance / count)
    return Equivalence(mean, mean - half, mean + half, margin)
