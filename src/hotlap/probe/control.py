"""The word from outside that it is enough, and the civil way to end the script.

The word is a number of optimizer steps in a small shared file: all ranks stop after the same step, so that none is left
waiting in a collective operation.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import ClassVar

from hotlap.facts import private

NEVER = (1 << 62) - 1
_NAME = "control"
_ACCUMULATION_AT_MOST = (
    64  # backward passes without a step before a script counts as one without an optimizer
)


class WindowDone(SystemExit):
    """Ends the script like `sys.exit(0)`: `finally` blocks and context managers run, no traceback is printed."""

    raised: ClassVar[bool] = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        type(self).raised = True


def create(folder: Path) -> None:
    private.write(folder / _NAME, struct.pack("q", NEVER))


def stop_after(folder: Path, steps: int) -> None:
    """Ask every process of the job to end once it has made this many optimizer steps."""
    with (folder / _NAME).open("r+b") as file:
        file.write(struct.pack("q", steps))


class Control:
    """Reads the word at every step: one look into shared memory."""

    def __init__(self, folder: Path) -> None:
        self.steps = 0
        self._backwards = 0
        self._view: memoryview[int] | None = None
        try:
            with (folder / _NAME).open("r+b") as file:
                self._view = memoryview(mmap.mmap(file.fileno(), 8)).cast("q")
        except OSError:
            self._view = None

    def backward_made(self) -> bool:
        """Counts a backward pass of a script without an optimizer; True when the window is done."""
        self._backwards += 1
        return self.without_optimizer > 0 and self._view is not None and self._backwards >= self._view[0]

    @property
    def without_optimizer(self) -> int:
        """Backward passes since the script counts as one without an optimizer."""
        return 0 if self.steps else max(0, self._backwards - _ACCUMULATION_AT_MOST)

    def step_made(self) -> bool:
        """Counts a step; True when the window is done."""
        self.steps += 1
        return self._view is not None and self.steps >= self._view[0]
