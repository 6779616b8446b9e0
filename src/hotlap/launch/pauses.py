"""The pauses in which a job was held, and its clock without them: a held job's timeline looks as if it never was.

All processes of a machine read one monotonic clock, so whoever holds the job writes down when, beside what its probe
writes: two numbers for each pause, nanoseconds since the run's origin, as the marks have them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from hotlap.probe import marks
from hotlap.probe.sampler import LINE_BITS

NAME = "pauses"
_TIMES = frozenset(
    {*range(marks.VALUE_FROM), marks.EVAL_ON, marks.TRAIN_ON}
    | {marks.DEVICE_FORWARD, marks.DEVICE_BACKWARD, marks.DEVICE_OPTIMIZER}
)


def note_pause(folder: Path, start: int, end: int) -> None:
    """At once, before any mark after the pause is read."""
    with (folder / NAME).open("ab") as file:
        file.write(array("q", (start, end)).tobytes())


def read_clock(folder: Path) -> Clock:
    """The clock of the job whose probe writes to this folder; of a job that was never held, the time itself."""
    path = folder / NAME
    if not path.is_file():
        return ALWAYS
    content = path.read_bytes()
    values = array("q", content[: len(content) // 16 * 16])
    return Clock(list(zip(values[::2], values[1::2], strict=True)))


class Clock:
    """Stands still in the pauses, which are in order and do not meet."""

    def __init__(self, pauses: Sequence[tuple[int, int]]) -> None:
        self._starts = [start for start, _ in pauses]
        self._ends = [end for _, end in pauses]
        self._held = [0, *accumulate(end - start for start, end in pauses)]

    def at(self, t: int) -> int:
        """What it shows at a moment."""
        index = bisect_right(self._starts, t)
        if index and t < self._ends[index - 1]:
            return self._starts[index - 1] - self._held[index - 1]
        return t - self._held[index]

    def marks(self, raw: array[int]) -> array[int]:
        """As the ring writes them: `value << 8 | code`, of which not every value is a time."""
        if not self._starts:
            return raw
        return array(
            "q", (self.at(each >> 8) << 8 | each & 255 if each & 255 in _TIMES else each for each in raw)
        )

    def samples(self, raw: array[int]) -> array[int]:
        """As the sampler writes them: microseconds beside the number of a line."""
        if not self._starts:
            return raw
        line = (1 << LINE_BITS) - 1
        moved = (self.at((each >> LINE_BITS) * 1000) // 1000 << LINE_BITS | each & line for each in raw)
        return array("q", moved)


ALWAYS = Clock(())
