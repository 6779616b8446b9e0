"""The end of a file of marks, read as it grows: how many steps were made, how fast, and the last of them whole."""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.units import NS_PER_S
from hotlap.watch.monitors import ThroughputDrift

KEPT = 1 << 15  # marks: some thousand steps, or a few hundred of a script with many parts
_AT_ONCE = 1 << 22  # bytes
_STEP, _BACKWARD = marks.leave(Kind.STEP), marks.leave(Kind.BACKWARD)


class Tail:
    """Of one process. A file that was begun anew (a job that was started again) is read anew."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = int(path.stem)
        self._begin()

    def _begin(self) -> None:
        self.recent = array("q")
        self.drift = ThroughputDrift()
        self.dropped = 0
        self.last_ns = 0
        self._offset = 0
        self._made: Counter[int] = Counter()
        self._most = 0
        self._passes = 0

    @property
    def steps(self) -> int:
        """Of the optimizer that steps most often, or backward passes where there is none."""
        return (self._most or self._passes) + self.dropped

    def read(self) -> None:
        if self.path.stat().st_size < self._offset:
            self._begin()
        with self.path.open("rb") as file:
            file.seek(self._offset)
            while content := file.read(_AT_ONCE):
                whole = len(content) // 8 * 8
                if not whole:
                    break
                self._offset += whole
                values = array("q")
                values.frombytes(content[:whole])
                self._take(values)
                file.seek(self._offset)

    def _take(self, values: array[int]) -> None:
        for value in values:
            code = value & 255
            if code in (_STEP, _BACKWARD):
                self.last_ns = value >> 8
                if code == _BACKWARD:
                    self._passes += 1
            elif code == marks.OPTIMIZER_ID:
                self._step_made(value >> 8)
            elif code == marks.CONTINUES:
                self._passes -= 1
            elif code == marks.DROPPED:
                self.dropped += value >> 8
                self.drift.pause()
        self.recent.extend(values)
        del self.recent[: max(0, len(self.recent) - KEPT)]

    def _step_made(self, optimizer: int) -> None:
        self._made[optimizer] += 1
        if self._made[optimizer] > self._most:
            self._most = self._made[optimizer]
            self.drift.add(self.steps, self.last_ns / NS_PER_S)
