"""The buffer that marks go to, and the file that it is emptied into.

Appending is one call of `array.append`. Emptying copies the filled part and deletes it, each in one step under the
interpreter's lock, so that the training thread never waits and never loses a mark.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections.abc import Callable
from pathlib import Path

from hotlap.probe import marks
from hotlap.probe.budget import LIMIT_BYTES, Budget

_STEP_END = marks.leave(marks.Kind.STEP)
_BACKWARD_END = marks.leave(marks.Kind.BACKWARD)


class Ring:
    """Marks on their way to `path`. The file is made when there is something to write."""

    def __init__(self, path: Path, limit: int = LIMIT_BYTES, *, holds_steps: bool = True) -> None:
        self.buffer = array("q")
        self.append: Callable[[int], None] = self.buffer.append
        self.limit = limit
        self.holds_steps = holds_steps
        self.reopen(path)

    def reopen(self, path: Path) -> None:
        """Start again in another file; what was bound to `append` stays valid (a fork needs that)."""
        del self.buffer[:]
        self.path = path
        self.count = 0
        self._budget = Budget(self.limit)
        self._lock = threading.Lock()
        self._file: int | None = None
        self._dropped_steps = 0

    def flush(self) -> None:
        """Write out what is there; from any thread."""
        with self._lock:
            count = len(self.buffer)
            if not count:
                return
            window = self.buffer[:count]
            del self.buffer[:count]
            self.count += count
            if self._budget.admits(count * 8):
                self._write(window)
            elif self.holds_steps:
                self._dropped_steps += _steps_in(window)

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, window: array[int]) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        if self._dropped_steps:
            window.insert(0, self._dropped_steps << 8 | marks.DROPPED)
            self._dropped_steps = 0
        os.write(self._file, window.tobytes())


def _steps_in(window: array[int]) -> int:
    codes = [value & 255 for value in window]
    return codes.count(_STEP_END) or codes.count(_BACKWARD_END)
