"""The buffer that marks go to, and the file that it is emptied into.

Appending is one call of `array.append`. Emptying copies the filled part and deletes it, each in one step under the
interpreter's lock, so that the training thread never waits and never loses a mark.
"""

from __future__ import annotations

import os
import threading
from array import array
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hotlap.facts import private
from hotlap.probe import marks

# How much a run may write: all of it at first, then every second window, every fourth, and so on.
#
# Windows are dropped whole and counted, so that what is kept stays consecutive steps. Each time a run has
# grown to twice its length only half as many windows are written as before, so that every doubling costs the
# same few bytes, and the end of a long run is seen as well as its beginning.


# A million steps of 11 marks would be 88 MB raw; with its timeline a run stays under 64 MB.
LIMIT_BYTES = 24 << 20
_WINDOW_BYTES = 64 << 10  # some hundred steps, however long each of them takes
_FREE_SHARE = 1 / 6  # of the limit, before thinning begins: leaves room for ten doublings


class FileSizeLimiter:
    """Admits or drops what is offered, one window after the other."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.written = 0
        self._offered = 0
        self._stride = 1

    def admits(self, size: int) -> bool:
        """Whether the next `size` bytes are written."""
        window = self._offered // _WINDOW_BYTES
        self._offered += size
        while self._offered > self._stride * self.limit * _FREE_SHARE:
            self._stride *= 2
        if window % self._stride or self.written + size > self.limit:
            return False
        self.written += size
        return True


_BACKWARD_END = marks.leave(marks.Kind.BACKWARD)


class Ring:
    """Marks on their way to `path`. The file is made when there is something to write."""

    def __init__(self, path: Path, limit: int = LIMIT_BYTES, *, holds_steps: bool = True) -> None:
        self.buffer = array("q")
        self.append: Callable[[int], None] = self.buffer.append
        self.limit = limit
        self.holds_steps = holds_steps
        self.reopen(path)

    def reopen(self, path: Path, limit: int | None = None) -> None:
        """Start again in another file; what was bound to `append` stays valid (a fork needs that)."""
        del self.buffer[:]
        self.path = path
        self.count = 0
        self._budget = FileSizeLimiter(limit or self.limit)
        self._lock = threading.Lock()
        self._file: int | None = None
        self._is_new = True
        self._dropped_steps = -1  # -1: nothing was dropped before what comes next

    def flush(self) -> None:
        """Write out what is there; from any thread."""
        with self._lock:
            count = len(self.buffer)
            if not count:
                return
            window = self.buffer[:count]
            del self.buffer[:count]
            self.count += count
            if not self._budget.admits(count * 8) or not self._write(self._after_dropped(window)):
                if self.holds_steps:
                    self._dropped_steps = max(0, self._dropped_steps) + _steps_in(window)
            else:
                self._dropped_steps = -1

    def close(self) -> None:
        self.flush()
        with self._lock:
            if self._dropped_steps >= 0 and self._write(self._after_dropped(array("q"))):
                self._dropped_steps = -1
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _after_dropped(self, window: array[int]) -> array[int]:
        if self._dropped_steps < 0:
            return window
        return array("q", [self._dropped_steps << 8 | marks.DROPPED]) + window

    def _write(self, window: array[int]) -> bool:
        """False on a full disk: half a window would shift all that follows."""
        if self._file is None:
            # A process of the same number may have been here before, in a long run.
            afresh = os.O_TRUNC if self._is_new else 0
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | afresh, private.FILE)
            self._is_new = False
        content = window.tobytes()
        before = os.fstat(self._file).st_size
        try:
            whole = os.write(self._file, content) == len(content)
        except OSError:
            whole = False
        if not whole:
            os.ftruncate(self._file, before)
        return whole


def _steps_in(window: array[int]) -> int:
    """Of the optimizer that steps most often, as when marks are folded."""
    steps = Counter(value >> 8 for value in window if value & 255 == marks.OPTIMIZER_ID)
    codes = Counter(value & 255 for value in window)
    return max(steps.values(), default=0) or max(0, codes[_BACKWARD_END] - codes[marks.CONTINUES])
