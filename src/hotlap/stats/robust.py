"""Numbers that a few stalls do not bend: spread, trimmed totals, the weight of the tail, and slopes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hotlap.errors import FactError

Value = TypeVar("Value")

MOST_POINTS = 200  # Theil-Sen looks at all pairs: 200 points are 19,900 slopes, some milliseconds of work


def mad(values: Sequence[float]) -> float:
    """Median absolute deviation, scaled so that it equals the standard deviation of normal noise."""
    middle = median(values)
    return 1.4826 * median([abs(value - middle) for value in values])


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


# Quantiles of a sequence, with linear interpolation between neighbours.


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the values lie: 0.5 is the median, 0.95 the p95."""
    return of_ordered(sorted(values), share)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return of_ordered(sorted(values), 0.5)


def of_ordered(ordered: Sequence[float], share: float) -> float:
    """A quantile of values that are sorted already, so that several of them cost one sort."""
    if not ordered:
        raise FactError("a quantile of no values was asked for.")
    if not 0.0 <= share <= 1.0:
        raise FactError(f"a quantile lies between 0 and 1, not at {share}.")
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


# Where a run becomes steady: after imports, first batches and compilation.
#
# The second half of the run says what a usual step is. A step of the first half is slow when it stands out
# from that, and warm-up is the cluster of slow or compiling steps at the very start. A stall, a log every tenth
# step or a compilation later in the run is part of the steady state: it is what the user pays for.


SLOW = 1.25  # times the level that four of five later steps keep: beyond the scatter of usual steps
GAP = 2  # usual steps between two slow ones of one warm-up: a second shape compiles soon after the first
TOO_FEW = 5  # below this nothing can be said of a usual step
TREND_FROM = 20  # later steps that a trend needs before it may be carried back to the start


def steady_from(walls: Sequence[int], compiles: Sequence[bool] | None = None) -> int:
    """Index of the first steady step; `compiles` says which steps compiled something.

    The first step is always warm-up, at most half of the steps are.
    """
    count = len(walls)
    if count < TOO_FEW:
        return min(1, count)
    limit = count // 2
    slow = _slow(walls, limit)
    end = 1
    for index in range(1, limit):
        if index > end + GAP:
            break
        if slow[index] or (compiles is not None and compiles[index]):
            end = index + 1
    return end


def _slow(walls: Sequence[int], limit: int) -> list[bool]:
    usual = _usual(walls, limit)
    later = sorted(wall / usual(index) for index, wall in enumerate(walls[limit:], limit))
    bound = SLOW * max(1.0, of_ordered(later, 0.8))
    return [walls[index] > bound * usual(index) for index in range(limit)]


def _usual(walls: Sequence[int], limit: int) -> Callable[[int], float]:
    """What a step would take if only the later steps were known; a drift is carried back to the start."""
    later = walls[limit:]
    level = max(1.0, median(later))
    middle = limit + (len(later) - 1) / 2
    trend = slope(range(limit, len(walls)), later) if len(later) >= TREND_FROM else 0.0
    # The line may fall to nothing at the start: a quarter of the level keeps growth from looking slow there.
    return lambda index: max(level / 4, level + trend * (index - middle))
