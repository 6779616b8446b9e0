"""Books the host's waits for the device to what the device was doing, and reads its memory.

A host that blocks in `.item()` waits for forward and backward passes that were queued long before. Where device events
were recorded, each synchronisation is split by the part that the device had under way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hotlap.diagnose.columns import Folded
from hotlap.diagnose.segments import STAGES
from hotlap.facts.timeline import Gauge, Stage
from hotlap.probe.marks import (
    DEVICE_ALLOCATED,
    DEVICE_BACKWARD,
    DEVICE_FORWARD,
    DEVICE_OPTIMIZER,
    DEVICE_RESERVED,
    VALUE_FROM,
    Kind,
)

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


def with_device_memory(gauges: Sequence[Gauge], raw: Sequence[int]) -> tuple[Gauge, ...]:
    """The gauges with what the device's allocator held at their time, as far as it was written down by then."""
    readings = _memory(raw)
    times = [t for t, _, _ in readings]
    filled = []
    for gauge in gauges:
        at = bisect_right(times, gauge.t) - 1
        if at >= 0:
            gauge = replace(gauge, cuda_allocated=readings[at][1], cuda_reserved=readings[at][2])
        filled.append(gauge)
    return tuple(filled)


def _memory(raw: Sequence[int]) -> list[tuple[int, int, int]]:
    """(time, bytes allocated, bytes reserved); a reading stands right after the mark that tells its time."""
    readings, t, allocated = [], 0, 0
    for mark in raw:
        code, value = mark & 255, mark >> 8
        if code < VALUE_FROM:
            t = value
        elif code == DEVICE_ALLOCATED:
            allocated = value
        elif code == DEVICE_RESERVED:
            readings.append((t, allocated, value))
    return readings


def _under_way(laps: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """(stage, nanoseconds) of the device's work between two moments: each part ends where its lap does."""
    at = start
    for completed, stage in laps[bisect_left(laps, (start, -1)) :]:
        if at >= end:
            return
        yield stage, min(completed, end) - at
        at = max(at, completed)
