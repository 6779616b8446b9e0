"""Numbers that a few stalls do not bend: spread, trimmed totals, the weight of the tail, and slopes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hotlap.stats.quantile import median, of_ordered

Value = TypeVar("Value")

MOST_POINTS = 200  # Theil-Sen looks at all pairs: 200 points are 19,900 slopes, some milliseconds of work


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation, scaled so that it equals the standard deviation of normal noise."""
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values])


def trimmed_total(values: Sequence[float], cut: float = 0.05) -> float:
    """The total as if the largest values, `cut` of them, had been like the rest on average."""
    ordered = sorted(values)
    kept = ordered[: max(1, round(len(ordered) * (1.0 - cut)))]
    return sum(kept) / len(kept) * len(ordered) if kept else 0.0


def tail_share(values: Sequence[float], factor: float = 3.0) -> float:
    """The part of the total that lies above `factor` medians, counted from the median on."""
    total = sum(values)
    if total <= 0:
        return 0.0
    middle = median(values)
    return sum(value - middle for value in values if value > factor * middle) / total


def thin(values: Sequence[Value], most: int = MOST_POINTS) -> Sequence[Value]:
    """At most `most` values, evenly spread, with the first and the last among them."""
    if len(values) <= most:
        return values
    stride = (len(values) - 1) / (most - 1)
    return [values[round(index * stride)] for index in range(most)]


def slope(xs: Sequence[float], ys: Sequence[float], share: float = 0.5) -> float:
    """Theil-Sen: the median of the slopes of all pairs. Up to 29 % of the points may be outliers.

    Another `share` gives another quantile of the slopes: growth in nearly all pairs has a positive one at 0.1.
    """
    points = thin(list(zip(xs, ys, strict=True)))
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for index, earlier in enumerate(points)
        for later in points[index + 1 :]
        if later[0] != earlier[0]
    )
    return of_ordered(slopes, share) if slopes else 0.0
