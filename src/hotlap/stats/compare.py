"""How much faster: the ratio of two samples of throughput, with its interval.

Ratios multiply, so the means are taken of logarithms (Welch: the two samples may scatter differently).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hotlap.errors import FactError

# Two-sided 95 % points of Student's t by degrees of freedom, the last one of the normal distribution.
_POINTS = (
    (1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306),
    (9, 2.262), (10, 2.228), (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000), (math.inf, 1.960),
)  # fmt: skip


@dataclass(frozen=True)
class Ratio:
    """`after` over `before`; 1.5 is half as fast again. The interval holds the truth in 95 of 100 cases."""

    value: float
    low: float
    high: float

    @property
    def decided(self) -> bool:
        """Whether the interval leaves no difference out."""
        return not self.low <= 1.0 <= self.high


def ratio(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """Ratio of the geometric means of two samples of at least two positive rates each."""
    first, second = _log_mean(before), _log_mean(after)
    difference = second[0] - first[0]
    error = math.sqrt(first[1] + second[1])
    half = _student(_freedom(first[1], len(before), second[1], len(after))) * error
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half))


def _log_mean(rates: Sequence[float]) -> tuple[float, float]:
    if len(rates) < 2 or min(rates) <= 0:
        raise FactError(
            f"a comparison needs at least two positive rates, not {list(rates)[:5]}.", "measure more trials"
        )
    logs = [math.log(rate) for rate in rates]
    mean = sum(logs) / len(logs)
    return mean, sum((value - mean) ** 2 for value in logs) / (len(logs) - 1) / len(logs)


def _freedom(first: float, first_count: int, second: float, second_count: int) -> float:
    if first + second == 0:
        return first_count + second_count - 2
    return (first + second) ** 2 / (first**2 / (first_count - 1) + second**2 / (second_count - 1))


def _student(freedom: float) -> float:
    """Interpolated in 1/freedom, in which the points lie almost on a line."""
    for (low, at_low), (high, at_high) in pairwise(_POINTS):
        if freedom <= high:
            part = (1 / low - 1 / max(freedom, low)) / (1 / low - 1 / high)
            return at_low + (at_high - at_low) * part
    return _POINTS[-1][1]
