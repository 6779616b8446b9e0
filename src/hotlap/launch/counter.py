"""Counts optimizer steps of the training process in a few bytes of shared memory: a look from outside costs it nothing.

A run under a plan may last for weeks, so unlike a profile it leaves no mark for each step.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_FORMAT = "qqq"
_SIZE = struct.calcsize(_FORMAT)
_ENDING = ".steps"


class StepCounter:
    """Of one process; a fork that trains gets a file of its own. Of several optimizers, the one that steps most."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._start_anew()
        if hasattr(os, "register_at_fork"):  # Windows has no fork
            os.register_at_fork(after_in_child=self._start_anew)

    def count(self, optimizer: object) -> int:
        """One more step of this optimizer; the number of steps so far."""
        view = self._view or self._open()
        made = self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        if made > view[0]:
            view[2] = time.perf_counter_ns()
            view[0] = made
            if made == 1:
                view[1] = view[2]
        return view[0]

    def _start_anew(self) -> None:
        self._view: memoryview[int] | None = None
        self._made: dict[int, int] = {}

    def _open(self) -> memoryview[int]:
        path = self._folder / f"{os.getpid()}{_ENDING}"
        try:
            path.write_bytes(bytes(_SIZE))
            with path.open("r+b") as file:
                self._view = memoryview(mmap.mmap(file.fileno(), _SIZE)).cast("q")
        except OSError:  # the run is over and its folder gone
            self._view = memoryview(bytearray(_SIZE)).cast("q")
        return self._view


@dataclass(frozen=True)
class Counted:
    """Steps of one process, and the seconds between its first and its last."""

    steps: int
    seconds: float


def counted(folder: Path) -> dict[int, Counted]:
    """By process id; those that made no step are left out."""
    found = {}
    for path in folder.glob(f"*{_ENDING}"):
        content = path.read_bytes()
        if len(content) == _SIZE:
            steps, first, last = struct.unpack(_FORMAT, content)
            if steps:
                found[int(path.name.removesuffix(_ENDING))] = Counted(steps, (last - first) / 1e9)
    return found
