"""Books the host's waits for the device to what the device was doing.

A host that blocks in `.item()` waits for forward and backward passes that were queued long before. Where device events
were recorded, each synchronisation is split by the part that the device had under way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

from hotlap.diagnose.columns import Folded
from hotlap.diagnose.segments import STAGES
from hotlap.facts.timeline import Stage
from hotlap.probe.marks import DEVICE_BACKWARD, DEVICE_FORWARD, DEVICE_OPTIMIZER, Kind

_STAGE_OF_CODE = {
    DEVICE_FORWARD: STAGES.index(Stage.FORWARD),
    DEVICE_BACKWARD: STAGES.index(Stage.BACKWARD),
    DEVICE_OPTIMIZER: STAGES.index(Stage.OPTIMIZER),
}


def book_waits(seen: Folded, raw: Sequence[int]) -> None:
    """Move the time of synchronisations, in place; without device events nothing moves."""
    laps = sorted((mark >> 8, _STAGE_OF_CODE[mark & 255]) for mark in raw if mark & 255 in _STAGE_OF_CODE)
    if not laps:
        return
    rows = seen.columns
    span_starts = [span[0] for span in seen.spans]
    for start, end in seen.overlays[Kind.SYNC]:
        row = bisect_right(rows.start, start) - 1
        span = bisect_right(span_starts, start) - 1
        if row < 0 or span < 0 or end > rows.start[row] + rows.wall[row]:
            continue
        booked = seen.spans[span][2]
        for stage, spent in _under_way(laps, start, end):
            moved = min(spent, rows.stages[booked][row])
            rows.stages[booked][row] -= moved
            rows.stages[stage][row] += moved


def _under_way(laps: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(stage, nanoseconds) of the device's work between two moments: each part ends where its lap does."""
    at = start
    for completed, stage in laps[bisect_left(laps, (start, -1)) :]:
        if at >= end:
            return
        yield stage, min(completed, end) - at
        at = max(at, completed)
