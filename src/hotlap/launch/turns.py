"""Several jobs at once, of which one runs at a time: whose turn it is, the others are held."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from hotlap.launch.holding import Guard, Hold


class Turns:
    """As a context manager: when it ends, in whatever way, all jobs go on."""

    def __init__(self) -> None:
        self._holds: dict[int, Hold] = {}
        self._last = 0

    def __enter__(self) -> Self:
        self._guard = Guard()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.all_go_on()
        finally:
            self._guard.close()

    def enter(self, pid: int, folder: Path, origin: int) -> Hold:
        """A job that was started, and runs; its probe writes to `folder` times since `origin`."""
        self._holds[pid] = Hold(pid, folder, origin, self._guard)
        return self._holds[pid]

    def leave(self, pid: int) -> None:
        """A job that has ended."""
        self._holds.pop(pid, None)

    def give(self, pid: int) -> None:
        """From now on this one runs alone, beginning on the core on which the one before it ran."""
        self.rest()
        before = self._holds.get(self._last)
        self._holds[pid].release(before.core if before else None)
        self._last = pid

    def rest(self) -> None:
        """Nobody runs. What must be done between two turns is done now, and takes no core from anybody."""
        for hold in self._holds.values():
            hold.hold()

    def all_go_on(self) -> None:
        for hold in self._holds.values():
            hold.release()
