"""Looks at the training thread's stack at a low rate, to say which lines hold the time.

A sample is the innermost line of the user's code and what it was calling; the stage it fell into is found afterwards
from the marks. A thread beside the training thread looks; no signal is sent, as one would cut system calls of the
script short (docs/adr/0024). It also empties the rings, so that a killed process loses at most a fraction of a second.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from hotlap.probe import boundary
from hotlap.probe.ring import Ring
from hotlap.probe.usercode import UserCode
from hotlap.probe.values import values_of

# A window of a second or two must give enough samples to name a line; a long run has time, its cost must vanish.
_FIRST_INTERVAL_S, _FIRST_SAMPLES = 0.02, 64
_LATER_INTERVAL_S = 0.05
_HELD_UP = 0.05  # of the time that the training thread may wait for this one to get a core
_RECONSIDER = 16  # looks
_SCARCE_NS = 1_000_000  # without a core, for each look: then it is asked at every one
_FLUSH_EVERY_S = 0.25
# Then after twice as long each time: a killed run is described, a long one pays next to nothing.
_FIRST_FACTS_S = 1.0
_LONGEST_FACTS_S = 60.0
_MOST_LINES = 4096
_MOST_LOOKED_AT = 256  # lines whose values are noted
_LOOKS_AT_VALUES = 4  # of one line: not all names are bound the first time
_NO_LINE = ["", 0, "", "", ""]
_MOST_DEPTH = 60
_LATE = 1.5  # times the interval
_MOST_MISSED = 1000  # looks that a call into C, which holds the lock, may have kept from happening
_LIMIT_BYTES = 4 << 20
_PROMPT_S = 2e-6  # the interpreter waits longer than that in any case, by the timer slack
_SET_TIMER_SLACK = 29  # of linux/prctl.h
_LEAST_SLACK_NS, _SLACK_NS = 1, 10_000
# Of the processor's time for one look, in as many looks in a row: the wait for the lock takes a core, as none is free.
_POLLED_NS, _POLLED_LOOKS = 1_500_000, 3
_COMPUTES = 0.02  # of the time: a thread that uses less only waits, as a progress bar's monitor does
_RECONSIDER_THREADS = 4  # looks
_MOST_THREADS = 16  # whose time is asked for
_OWN = "hotlap"  # how threads of hotlap's are called

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
        self._values: dict[tuple[str, int], list[dict[str, str]]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._gate = threading.Lock()  # held while sampling goes on
        self._watched = 0
        self._reads_values = False
        self._pace = _Pace()
        self._begin()

    def reopen(self, path: Path) -> None:
        self._ring.reopen(path)
        self._lines.clear()
        self._table.clear()
        self._values.clear()
        self._numbers = itertools.count()
        self._thread = None
        self._begin()

    def _begin(self) -> None:
        self._cpu_ns = 0
        self._flushed = self._described = (
            time.monotonic()
        )  # kept when a fork stops the thread, as often happens
        self._patience = _FIRST_FACTS_S
        self._waits_since = 0
        self.idle = True

    def start(self, thread: int) -> None:
        """Watch the thread of this identity, which calls this."""
        self._watched = thread
        self._reads_values = sys.gettrace() is None and sys.getprofile() is None
        self.idle = False
        if self._thread is None:
            self._waits_since = time.perf_counter_ns()
            self._pace = _Pace()
            self._gate = threading.Lock()
            self._gate.acquire()
            self._thread = threading.Thread(target=self._run, args=(self._gate,), name=_OWN, daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """The next batch or step starts it again."""
        self.idle = True
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._gate.release()
            thread.join(timeout=1.0)

    def facts(self) -> dict[str, Any]:
        self._ring.flush()
        rows = self._table.copy()
        table = [rows.get(number, _NO_LINE) for number in range(max(rows, default=-1) + 1)]
        values = [[file, line, looks] for (file, line), looks in self._values.copy().items()]
        return {"lines": table, "values": values, "cpu_ns": self._cpu_ns, "samples": self._ring.count}

    def _run(self, gate: threading.Lock) -> None:
        pace, spent, polled, interval = self._pace, 0, 0, _SwitchInterval(self._watched)
        boundary.attempt(_hold_signals)
        boundary.attempt(_wake_promptly, _LEAST_SLACK_NS)
        while not gate.acquire(timeout=pace.interval):  # one call into C: cheaper than an Event
            boundary.attempt(self._sample)
            boundary.attempt(pace.looked, len(self._ring.buffer) + self._ring.count)
            boundary.attempt(interval.looked)
            self._write_out(time.monotonic())
            used, spent = time.thread_time_ns() - spent, time.thread_time_ns()
            self._cpu_ns += used
            polled = polled + 1 if used > _POLLED_NS else 0
            if polled == _POLLED_LOOKS:
                boundary.attempt(_wake_promptly, _SLACK_NS)
            boundary.attempt(pace.waits)
            self._waits_since = time.perf_counter_ns()
        boundary.attempt(interval.close)
        boundary.attempt(pace.close)

    def _write_out(self, moment: float) -> None:
        if moment - self._flushed > _FLUSH_EVERY_S:
            self._flushed = moment
            boundary.attempt(self._marks.flush)
            boundary.attempt(self._ring.flush)
        if moment - self._described > self._patience:
            self._described, self._patience = moment, min(self._patience * 2, _LONGEST_FACTS_S)
            self._write_facts()

    def _sample(self) -> None:
        with frames_kept():
            frame = sys._current_frames().get(self._watched)
            if frame is not None:
                self._look(frame, time.perf_counter_ns())

    def _look(self, frame: FrameType, moment: int) -> None:
        """Count every look that was due meanwhile: a call into C that held the lock kept them from happening, and is
        what runs now. What this thread did itself, or waited for a core, says nothing of any line."""
        line = self._line_of(frame)
        since = moment - self._waits_since
        if since > _LATE * 1e9 * self._pace.interval:
            since -= self._pace.without_core_ns()
        due = max(1, min(_MOST_MISSED, round(since / 1e9 / self._pace.interval)))
        for missed in range(due - 1, -1, -1):
            self._ring.append((moment - since * missed // due - self._origin) // 1000 << LINE_BITS | line)

    def _line_of(self, leaf: FrameType) -> int:
        stack = stack_of(leaf)
        blamed, callee = self._blamed(stack)
        # The probe stands between the script and torch.
        inner = next((each.code for each in stack if not self._user.is_probe(each.code)), None)
        if inner is None:
            return _UNKNOWN
        code, number = blamed.code, line_at(blamed.code, blamed.instruction)
        key = (code.co_filename, number, callee, inner.co_filename, inner.co_qualname)
        line = self._lines.get(key)
        if line is None:
            if len(self._lines) >= _MOST_LINES:
                return _UNKNOWN
            line = self._lines.setdefault(key, next(self._numbers))
            self._table[line] = describe(code, number, callee, inner)
        if self._reads_values and self._user.owns(code):
            self._note_values(key[:2], blamed.frame)
        return line

    def _note_values(self, place: tuple[str, int], frame: FrameType) -> None:
        """The first look at a line, and of the next ones what is new."""
        looks = self._values.get(place)
        if looks is None and len(self._values) < _MOST_LOOKED_AT:
            looks = self._values.setdefault(place, [])
        if looks is not None and len(looks) < _LOOKS_AT_VALUES:
            found = boundary.attempt(values_of, frame) or {}
            known = looks[0] if looks else {}
            looks.append({name: words for name, words in found.items() if known.get(name) != words})

    def _blamed(self, stack: list[_Call]) -> tuple[_Call, str]:
        """The innermost call of the user's code and what it calls, else the innermost one that is not the probe's."""
        callee, otherwise = "", stack[0]
        for each in stack:
            if self._user.owns(each.code):
                return each, callee
            name = each.code.co_qualname
            wrapper = "<locals>" in name  # a decorator's, which says nothing
            if not wrapper and not self._user.is_probe(each.code):
                callee = name
            if self._user.is_probe(otherwise.code):
                otherwise = each
        return otherwise, ""


class _Call(NamedTuple):
    frame: FrameType
    code: CodeType
    instruction: int


def stack_of(leaf: FrameType) -> list[_Call]:
    """Read at once, and judged afterwards: meanwhile the training thread may have got the lock back and gone on."""
    stack, frame = [], leaf
    for _ in range(_MOST_DEPTH):
        stack.append(_Call(frame, frame.f_code, frame.f_lasti))
        back = frame.f_back
        if back is None:
            break
        frame = back
    return stack


@contextmanager
def frames_kept() -> Iterator[None]:
    """While frames of other threads are read, nothing may let those threads run on.

    Before Python 3.12 a frame object that is made may start a garbage collection. Python code that this runs lets go of
    the interpreter's lock, the function of the frame returns, and memory that is no frame any more is taken for one.
    """
    if sys.version_info >= (3, 12) or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class _Pace:
    """How long to sleep between two looks.

    A look needs the interpreter's lock. On a machine without a free core this thread gets the lock and then waits for a
    core, and the training thread waits with it: looks are rarer there.
    """

    def __init__(self) -> None:
        self.interval = _FIRST_INTERVAL_S
        self._queue = RunQueue()
        self._waited = self._before_wait = self._queue.waited_ns() or 0
        self._looks = self._looks_before = 0
        self._scarce = False

    def looked(self, samples: int) -> None:
        self._looks += 1
        if samples > _FIRST_SAMPLES:
            self.interval = _LATER_INTERVAL_S
        elif self._looks % _RECONSIDER == 0:
            waited = self._queue.waited_ns() or 0
            each_s = (waited - self._waited) / _RECONSIDER / 1e9
            self._waited = waited
            self.interval = min(_LATER_INTERVAL_S, max(_FIRST_INTERVAL_S, each_s / _HELD_UP))

    def waits(self) -> None:
        """Asking lets go of the interpreter's lock, which takes time to get back: where cores are free, it is rare."""
        looks = self._looks - self._looks_before
        if self._scarce or looks >= _RECONSIDER:
            waited = self._queue.waited_ns() or 0
            self._scarce = waited - self._before_wait > _SCARCE_NS * looks
            self._before_wait, self._looks_before = waited, self._looks

    def without_core_ns(self) -> int:
        """For how long it was ready for a look and had no core, since that was last asked."""
        return (self._queue.waited_ns() or 0) - self._before_wait

    def close(self) -> None:
        self._queue.forget()


def line_at(code: CodeType, instruction: int) -> int:
    """Between two lines of code (an exception on its way out) a call has no line; its function's stands for it."""
    for begin, end, line in code.co_lines():
        if begin <= instruction < end:
            return line or code.co_firstlineno
    return code.co_firstlineno


def describe(code: CodeType, line: int, callee: str, inner: CodeType) -> list[Any]:
    """A line as plain data: file, line, function, callee, innermost function. Its text is read later, outside."""
    innermost = f"{inner.co_filename.rpartition(os.sep)[2].removesuffix('.py')}.{inner.co_qualname}"
    return [code.co_filename, line, code.co_qualname, callee, innermost]


class _SwitchInterval:
    """Has the interpreter's lock handed over within one line of Python, as long as no other thread computes.

    A thread that waits for the lock gets it at once where the training thread lets go of it, and has it taken away only
    after the switch interval, 5 ms, which begins anew each time that the training thread lets go for a moment: lines
    that compute for less would never be met. Where other threads of the script compute, the interval stays theirs, as
    they would take turns at each line. Threads that only wait are none of these: a progress bar's monitor, a
    notebook's sockets, a tracker's queue.
    """

    def __init__(self, watched: int) -> None:
        self._passed = {watched, threading.get_ident()}
        self._usual: float | None = None
        self._moment, self._looks = time.monotonic_ns(), 0
        self._used: dict[int, int] = {}
        self._shorten()

    def looked(self) -> None:
        """Threads are looked at now and then: each file that is read lets go of the lock."""
        self._looks += 1
        if self._looks % _RECONSIDER_THREADS:
            return
        others = [each for each in threading.enumerate() if each.ident not in self._passed]
        if self._computing([each.native_id or 0 for each in others if not each.name.startswith(_OWN)]):
            self.close()
        else:
            self._shorten()

    def _shorten(self) -> None:
        if self._usual is None:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(_PROMPT_S)

    def close(self) -> None:
        usual, self._usual = self._usual, None
        if (
            usual is not None and sys.getswitchinterval() < 2 * _PROMPT_S
        ):  # else the script has set it meanwhile
            sys.setswitchinterval(usual)

    def _computing(self, threads: list[int]) -> bool:
        used = {thread: cpu_ns(thread) for thread in threads[:_MOST_THREADS]}
        counted = {thread: ns for thread, ns in used.items() if ns is not None}
        now = time.monotonic_ns()
        spent = sum(ns - self._used.get(thread, ns) for thread, ns in counted.items())
        known = len(counted) == len(threads)  # the system may not count it, or there are too many
        computing = not known or spent > _COMPUTES * (now - self._moment)
        self._used, self._moment = counted, now
        return computing


def _hold_signals() -> None:
    """A signal that the script waits for in one of its own threads must not come to this one."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())


def _wake_promptly(slack_ns: int) -> None:
    """Linux lets a waiting thread sleep 50 us longer than it asked for. By then the training thread has left its line
    of Python, and is met in the next call that lets go of the lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(slack_ns), 0, 0, 0)


# How long a thread was ready to run but had no core to run on. Linux counts it; elsewhere it is not known.


class RunQueue:
    """Reads the scheduler's own count of the calling thread; the file is opened once for each thread."""

    def __init__(self) -> None:
        self._files: dict[int, int] = {}

    def waited_ns(self) -> int | None:
        """Nanoseconds since the thread began; None where the system does not count them."""
        thread = threading.get_ident()
        file = self._files.get(thread)
        if file is None:
            file = self._files[thread] = _open()
        if file < 0:
            return None
        return int(os.pread(file, 64, 0).split()[1])

    def forget(self) -> None:
        """After a fork the files are still those of the parent's threads."""
        for file in self._files.values():
            if file >= 0:
                os.close(file)
        self._files.clear()


def cpu_ns(native_thread: int) -> int | None:
    """What a thread of this process has computed; None where the system does not count it, or it has ended."""
    try:
        return int(Path(f"/proc/self/task/{native_thread}/schedstat").read_bytes().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _open() -> int:
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return -1
