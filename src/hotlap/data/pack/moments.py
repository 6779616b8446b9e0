"""Mean and standard deviation of a field over all samples, gathered in parts and joined."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Moments:
    """For each position of the last axis where all samples agree on its length, else one for all values.

    `squares` is the sum of squared distances from the mean, which can be joined without loss.
    """

    count: int
    mean: tuple[float, ...]
    squares: tuple[float, ...]

    @property
    def std(self) -> tuple[float, ...]:
        """As sklearn's StandardScaler: of the population, and 1 where all values are equal."""
        spread = (math.sqrt(each / self.count) if self.count else 0.0 for each in self.squares)
        return tuple(each or 1.0 for each in spread)


def moments_of(values: np.ndarray[Any, Any]) -> Moments:
    """Of one sample."""
    if not values.size:
        return Moments(0, (0.0,), (0.0,))
    rows = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1] if values.ndim else 1)
    mean = rows.mean(axis=0)
    return Moments(len(rows), tuple(mean.tolist()), tuple(((rows - mean) ** 2).sum(axis=0).tolist()))


def joined(one: Moments, two: Moments) -> Moments:
    """Of all values of both (Chan's rule)."""
    if not one.count or not two.count:
        return one if one.count else two
    if len(one.mean) != len(two.mean):
        one, two = overall(one), overall(two)
    count = one.count + two.count
    gaps = [other - mean for mean, other in zip(one.mean, two.mean, strict=True)]
    weight = one.count * two.count / count
    mean = tuple(mean + gap * two.count / count for mean, gap in zip(one.mean, gaps, strict=True))
    pairs = zip(one.squares, two.squares, gaps, strict=True)
    return Moments(count, mean, tuple(mine + other + gap * gap * weight for mine, other, gap in pairs))


def overall(each: Moments) -> Moments:
    """One mean for all positions."""
    width = len(each.mean)
    mean = sum(each.mean) / width
    squares = sum(each.squares) + each.count * sum((part - mean) ** 2 for part in each.mean)
    return Moments(each.count * width, (mean,), (squares,))
