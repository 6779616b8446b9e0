"""Looks at the training thread's stack at a low rate, to say which lines hold the time.

A sample is the innermost line of the user's code and what it was calling; the stage it fell into is found afterwards
from the marks. Two look, and each moment is counted once: a ticker in the training thread, which meets whatever runs
as Python, and a thread of its own, which meets what has let go of the interpreter's lock, such as a sleep or an
operator of torch. That thread also empties the rings, so that a killed process loses at most a fraction of a second.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from hotlap.probe import boundary
from hotlap.probe.ring import Ring
from hotlap.probe.runqueue import RunQueue
from hotlap.probe.ticker import Ticker
from hotlap.probe.usercode import UserCode

# A window of a second or two must give enough samples to name a line; a long run has time, its cost must vanish. A
# tick costs 0.1 to 0.2 ms on a virtual machine, most of it outside of Python.
_FIRST_INTERVAL_S, _FIRST_SAMPLES = 0.02, 64
_LATER_INTERVAL_S = 0.05
_HELD_UP = 0.05  # of the time that the training thread may wait for this one to get a core
_RECONSIDER = 16  # looks
_FLUSH_EVERY_S = 0.25
# Then after twice as long each time: a killed run is described, a long one pays next to nothing.
_FIRST_FACTS_S = 1.0
_LONGEST_FACTS_S = 60.0
_MOST_LINES = 4096
_NO_LINE = ["", 0, "", "", ""]
_MOST_DEPTH = 60
_LATE = 1.5  # intervals without a look: the ticker is held up by a call into C
_RARELY = 5  # ticks to one look from beside, which costs the thread a wake-up
_MOST_MISSED = 1000  # looks that a call into C, which holds the lock, may have kept from happening
_LIMIT_BYTES = 4 << 20

LINE_BITS = 16
_UNKNOWN = (1 << LINE_BITS) - 1  # no row of the table


class Sampler:
    """Samples the thread that `start` named last."""

    def __init__(self, path: Path, origin: int, marks: Ring, write_facts: Callable[[], Any]) -> None:
        self._origin = origin
        self._marks = marks
        self._write_facts = write_facts
        self._user = UserCode()
        self._ring = Ring(path, _LIMIT_BYTES, holds_steps=False)
        self._lines: dict[tuple[str, int, str, str, str], int] = {}
        self._table: dict[int, list[Any]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._gate = threading.Lock()  # held while sampling goes on
        self._watched = 0
        self._pace = _Pace()
        self._ticker = Ticker(self._ticked)
        self._begin()

    def reopen(self, path: Path) -> None:
        self._ring.reopen(path)
        self._lines.clear()
        self._table.clear()
        self._numbers = itertools.count()
        self._thread = None
        self._ticker.forget()
        self._begin()

    def _begin(self) -> None:
        self._cpu_ns = 0
        self._flushed = self._described = (
            time.monotonic()
        )  # kept when a fork stops the thread, as often happens
        self._patience = _FIRST_FACTS_S
        self._looked_at = 0
        self.idle = True

    def start(self, thread: int) -> None:
        """Watch the thread of this identity."""
        self._watched = thread
        self.idle = False
        if self._thread is None:
            self._looked_at = time.perf_counter_ns()
            self._pace = _Pace()
            self._gate = threading.Lock()
            self._gate.acquire()
            self._thread = threading.Thread(target=self._run, args=(self._gate,), name="hotlap", daemon=True)
            self._thread.start()
        if thread == threading.main_thread().ident:
            boundary.attempt(self._ticker.start, self._pace.interval)
        else:
            boundary.attempt(self._ticker.stop)

    def stop(self) -> None:
        """The next batch or step starts it again."""
        self.idle = True
        boundary.attempt(self._ticker.stop)
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._gate.release()
            thread.join(timeout=1.0)

    def facts(self) -> dict[str, Any]:
        self._ring.flush()
        rows = self._table.copy()
        table = [rows.get(number, _NO_LINE) for number in range(max(rows, default=-1) + 1)]
        return {"lines": table, "cpu_ns": self._cpu_ns, "samples": self._ring.count}

    def _run(self, gate: threading.Lock) -> None:
        pace, spent = self._pace, 0
        while not gate.acquire(
            timeout=pace.interval * (_RARELY if self._ticker.ticks else 1)
        ):  # one call into C: cheaper than an Event
            boundary.attempt(self._look_from_beside)
            before = pace.interval
            boundary.attempt(pace.looked, len(self._ring.buffer) + self._ring.count)
            if pace.interval != before:
                boundary.attempt(self._ticker.pace, pace.interval)
            self._write_out(time.monotonic())
            self._cpu_ns += (used := time.thread_time_ns()) - spent
            spent = used
        boundary.attempt(pace.close)

    def _write_out(self, moment: float) -> None:
        if moment - self._flushed > _FLUSH_EVERY_S:
            self._flushed = moment
            boundary.attempt(self._marks.flush)
            boundary.attempt(self._ring.flush)
        if moment - self._described > self._patience:
            self._described, self._patience = moment, min(self._patience * 2, _LONGEST_FACTS_S)
            self._write_facts()

    def _ticked(self, frame: FrameType) -> None:
        started = time.perf_counter_ns()
        if threading.get_ident() == self._watched:
            self._look(frame, started)
        self._cpu_ns += time.perf_counter_ns() - started

    def _look_from_beside(self) -> None:
        moment = time.perf_counter_ns()
        if not self._ticker.yields() and moment - self._looked_at < self._pace.interval * 1e9 * _LATE:
            return
        frame = sys._current_frames().get(self._watched)
        if frame is not None:
            self._look(frame, moment)

    def _look(self, frame: FrameType, moment: int) -> None:
        """Count every look that was due since the last one: what kept it from happening is what runs now."""
        since = moment - self._looked_at
        due = min(_MOST_MISSED, round(since / 1e9 / self._pace.interval))
        if due < 1:
            return  # the other one has looked
        self._looked_at = moment
        line = self._line_of(frame)
        for missed in range(due - 1, -1, -1):
            self._ring.append((moment - since * missed // due - self._origin) // 1000 << LINE_BITS | line)

    def _line_of(self, leaf: FrameType) -> int:
        frame, callee = self._blamed(leaf)
        key = (
            frame.f_code.co_filename,
            line_of(frame),
            callee,
            leaf.f_code.co_filename,
            leaf.f_code.co_qualname,
        )
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                return _UNKNOWN
            # Both may meet a new line at once: a number is given in one step, and never twice.
            line = self._lines.setdefault(key, next(self._numbers))
            self._table[line] = describe(frame, callee, leaf.f_code)
        return line

    def _blamed(self, leaf: FrameType) -> tuple[FrameType, str]:
        """The innermost frame of the user's code and the name of what it calls, else the leaf itself."""
        frame: FrameType | None = leaf
        callee = ""
        for _ in range(_MOST_DEPTH):
            if frame is None:
                break
            if self._user.owns(frame.f_code):
                return frame, callee
            name = frame.f_code.co_qualname
            wrapper = "<locals>" in name  # a decorator's, which says nothing
            if not wrapper and not self._user.is_probe(frame.f_code):
                callee = name
            frame = frame.f_back
        return leaf, ""


class _Pace:
    """How long to sleep between two looks.

    A look needs the interpreter's lock. On a machine without a free core this thread gets the lock and then waits for a
    core, and the training thread waits with it: looks are rarer there.
    """

    def __init__(self) -> None:
        self.interval = _FIRST_INTERVAL_S
        self._queue = RunQueue()
        self._waited = self._queue.waited_ns() or 0
        self._looks = 0

    def looked(self, samples: int) -> None:
        self._looks += 1
        if samples > _FIRST_SAMPLES:
            self.interval = _LATER_INTERVAL_S
        elif self._looks % _RECONSIDER == 0:
            waited = self._queue.waited_ns() or 0
            each_s = (waited - self._waited) / _RECONSIDER / 1e9
            self._waited = waited
            self.interval = min(_LATER_INTERVAL_S, max(_FIRST_INTERVAL_S, each_s / _HELD_UP))

    def close(self) -> None:
        self._queue.forget()


def line_of(frame: FrameType) -> int:
    """Between two lines of code (an exception on its way out) a frame has no line; its function's stands for it."""
    return frame.f_lineno or frame.f_code.co_firstlineno


def describe(frame: FrameType, callee: str, leaf: CodeType) -> list[Any]:
    """A line as plain data: file, line, function, callee, innermost function. Its text is read later, outside."""
    # As plain as can be: a tick may come inside a compiled region, where the compiler looks at each call.
    inner = f"{leaf.co_filename.rpartition(os.sep)[2].removesuffix('.py')}.{leaf.co_qualname}"
    return [frame.f_code.co_filename, line_of(frame), frame.f_code.co_qualname, callee, inner]
