"""How much faster: the ratio of two samples of throughput, with its interval.

Ratios multiply, so the means are taken of logarithms (Welch: the two samples may scatter differently).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import overload

from hotlap.errors import FactError

# Two-sided points of Student's t by degrees of freedom, the last ones of the normal distribution: 90, 95 and 99 %.
_POINTS = (
    (1, 6.314, 12.706, 63.657), (2, 2.920, 4.303, 9.925), (3, 2.353, 3.182, 5.841), (4, 2.132, 2.776, 4.604),
    (5, 2.015, 2.571, 4.032), (6, 1.943, 2.447, 3.707), (7, 1.895, 2.365, 3.499), (8, 1.860, 2.306, 3.355),
    (9, 1.833, 2.262, 3.250), (10, 1.812, 2.228, 3.169), (12, 1.782, 2.179, 3.055), (15, 1.753, 2.131, 2.947),
    (20, 1.725, 2.086, 2.845), (30, 1.697, 2.042, 2.750), (60, 1.671, 2.000, 2.660), (math.inf, 1.645, 1.960, 2.576),
)  # fmt: skip
NARROW = 0.03  # half the interval: who wants less must ask for more rounds
OF_DIFFERENCE = 0.1  # or this part of the difference: nobody needs 6.00 times told from 6.10 times
_COLUMNS = {0.90: 1, 0.95: 2, 0.99: 3}


@dataclass(frozen=True)
class Scatter:
    """How much the logarithms of rates scatter between runs of one plan, pooled over many plans."""

    variance: float
    freedom: int


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

    @property
    def narrow(self) -> bool:
        """Whether more rounds would tell nobody anything."""
        return (self.high - self.low) / 2 <= max(NARROW * self.value, OF_DIFFERENCE * abs(self.value - 1.0))


def ratio(
    before: Sequence[float],
    after: Sequence[float],
    *,
    confidence: float = 0.95,
    scatter: Scatter | None = None,
) -> Ratio:
    """Ratio of the geometric means of two samples of at least two positive rates each.

    Where the scatter between runs is known from more than these, one rate of each is enough.
    """
    if scatter is not None and scatter.freedom > 0:
        first, second = _mean_log(before), _mean_log(after)
        error = math.sqrt(scatter.variance * (1 / len(before) + 1 / len(after)))
        return _around(second - first, student(scatter.freedom, confidence) * error)
    one, two = _log_mean(before), _log_mean(after)
    freedom = _freedom(one[1], len(before), two[1], len(after))
    return _around(two[0] - one[0], student(freedom, confidence) * math.sqrt(one[1] + two[1]))


@overload
def pooled(groups: Sequence[Sequence[float]], usual: Scatter) -> Scatter: ...


@overload
def pooled(groups: Sequence[Sequence[float]], usual: None = None) -> Scatter | None: ...


def pooled(groups: Sequence[Sequence[float]], usual: Scatter | None = None) -> Scatter | None:
    """The scatter within groups of runs of one plan each, beside what is usual; None where neither is known."""
    several = [group for group in groups if len(group) > 1]
    freedom = sum(len(group) - 1 for group in several)
    squares = sum(_log_mean(group)[1] * len(group) * (len(group) - 1) for group in several)
    if usual is not None:
        freedom, squares = freedom + usual.freedom, squares + usual.variance * usual.freedom
    return Scatter(squares / freedom, freedom) if freedom else None


def within_rounds(groups: Sequence[Sequence[float]]) -> Scatter | None:
    """The scatter of ratios that were taken side by side: `groups` hold a rate for each round, in the same order.

    What a round does to all of its rates is left out, as in an analysis of randomised blocks: all pairs that rounds
    can form are pooled, and none is counted twice. None where there are not two groups with two rounds.
    """
    rounds = min(map(len, groups), default=0)
    if len(groups) < 2 or rounds < 2:
        return None
    logs = [[math.log(rate) for rate in group[:rounds]] for group in groups]
    means = [sum(group) / rounds for group in logs]
    levels = [sum(each) / len(logs) for each in zip(*logs, strict=True)]
    middle = sum(means) / len(means)
    squares = sum(
        (value - mean - level + middle) ** 2
        for group, mean in zip(logs, means, strict=True)
        for value, level in zip(group, levels, strict=True)
    )
    freedom = (len(logs) - 1) * (rounds - 1)
    return Scatter(2 * squares / freedom, freedom)  # twice: of the difference of two


def repeated(ratios: Sequence[float], scatter: Scatter, confidence: float = 0.99) -> Ratio:
    """Of ratios that were each taken side by side; `scatter` is of their logarithms."""
    half = student(scatter.freedom, confidence) * math.sqrt(scatter.variance / len(ratios))
    return _around(_mean_log(ratios), half)


def trimmed(ratios: Sequence[float], confidence: float = 0.99) -> Ratio:
    """Of ratios that were each taken side by side, without the largest and the smallest (Yuen's interval): a machine
    that changes its pace between two runs makes one ratio far off, in either direction. From four ratios on."""
    logs = sorted(math.log(ratio) for ratio in ratios)
    count, inner = len(logs), logs[1:-1]
    drawn_in = [inner[0], *inner, inner[-1]]
    mean = sum(drawn_in) / count
    variance = sum((value - mean) ** 2 for value in drawn_in) / (count - 1)
    error = math.sqrt(variance * count) / len(inner)
    return _around(sum(inner) / len(inner), student(len(inner) - 1, confidence) * error)


def _around(difference: float, half: float) -> Ratio:
    return Ratio(math.exp(difference), math.exp(difference - half), math.exp(difference + half))


def _mean_log(rates: Sequence[float]) -> float:
    return sum(math.log(rate) for rate in rates) / len(rates)


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


def student(freedom: float, confidence: float) -> float:
    """A two-sided point, interpolated in 1/freedom, in which the points lie almost on a line."""
    column = _COLUMNS[confidence]
    for lower, upper in pairwise(_POINTS):
        low, high = lower[0], upper[0]
        if freedom <= high:
            part = (1 / low - 1 / max(freedom, low)) / (1 / low - 1 / high)
            return lower[column] + (upper[column] - lower[column]) * part
    return _POINTS[-1][column]


# Is a difference small enough not to matter? Two one-sided tests: the interval must lie within the margin.


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
