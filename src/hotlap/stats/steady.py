"""Where a run becomes steady: after imports, first batches and compilation.

The second half of the run says what a usual step is. A step of the first half is slow when it stands out
from that, and warm-up is the cluster of slow or compiling steps at the very start. A stall, a log every tenth
step or a compilation later in the run is part of the steady state: it is what the user pays for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hotlap.stats.quantile import median, of_ordered
from hotlap.stats.robust import slope

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
