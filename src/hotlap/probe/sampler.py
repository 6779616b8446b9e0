"""Looks at the training thread's stack at a low rate, to say which lines hold the time.

A sample is the innermost line of the user's code and what it was calling; the stage it fell into is found afterwards
from the marks. A thread beside the training thread looks; no signal is sent, as one would cut system calls of the
script short (docs/adr/0024). It also empties the rings, so that a killed process loses at most a fraction of a second.
"""

from __future__ import annotations

import ctypes
import dis
import inspect
import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from hotlap.probe import boundary
from hotlap.probe.ring import Ring
from hotlap.probe.usercode import UserCode

# A window of a second or two must give enough samples to name a line; a long run has time, its cost must vanish.
_FIRST_INTERVAL_S, _FIRST_SAMPLES = 0.02, 64
_LATER_INTERVAL_S = 0.05
_HELD_UP = 0.05  # of the time that the training thread may wait for this one to get a core
_RECONSIDER = 16  # looks
_FLUSH_EVERY_S = 0.25
# Then after twice as long each time: a killed run is described, a long one pays next to nothing.
_FIRST_FACTS_S = 1.0
_LONGEST_FACTS_S = 60.0
_MOST_LINES = 4096
_MOST_LOOKED_AT = 256  # lines whose values are noted
_LOOKS_AT_VALUES = 4  # of one line: not all names are bound the first time
_NO_LINE = ["", 0, "", "", ""]
_MOST_DEPTH = 60
_MOST_MISSED = 1000  # looks that a call into C, which holds the lock, may have kept from happening
_LIMIT_BYTES = 4 << 20
_PROMPT_S = 2e-6  # the interpreter waits longer than that in any case, some 10 us
_SET_TIMER_SLACK = 29  # of linux/prctl.h
_TWO = 2  # the training thread and this one

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
        self._looked_at = 0
        self.idle = True

    def start(self, thread: int) -> None:
        """Watch the thread of this identity, which calls this."""
        self._watched = thread
        self._reads_values = sys.gettrace() is None and sys.getprofile() is None
        self.idle = False
        if self._thread is None:
            self._looked_at = time.perf_counter_ns()
            self._pace = _Pace()
            self._gate = threading.Lock()
            self._gate.acquire()
            self._thread = threading.Thread(target=self._run, args=(self._gate,), name="hotlap", daemon=True)
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
        pace, spent = self._pace, 0
        boundary.attempt(_hold_signals)
        boundary.attempt(_wake_promptly)
        while not _ended(gate, pace.interval):
            boundary.attempt(self._sample)
            boundary.attempt(pace.looked, len(self._ring.buffer) + self._ring.count)
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

    def _sample(self) -> None:
        frame = sys._current_frames().get(self._watched)
        if frame is not None:
            self._look(frame, time.perf_counter_ns())

    def _look(self, frame: FrameType, moment: int) -> None:
        """Count every look that was due since the last one: what kept it from happening is what runs now."""
        since = moment - self._looked_at
        due = max(1, min(_MOST_MISSED, round(since / 1e9 / self._pace.interval)))
        self._looked_at = moment
        line = self._line_of(frame)
        for missed in range(due - 1, -1, -1):
            self._ring.append((moment - since * missed // due - self._origin) // 1000 << LINE_BITS | line)

    def _line_of(self, leaf: FrameType) -> int:
        frame, callee = self._blamed(leaf)
        while self._user.is_probe(leaf.f_code):  # the probe stands between the script and torch
            if leaf.f_back is None:
                return _UNKNOWN
            leaf = leaf.f_back
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
            line = self._lines.setdefault(key, next(self._numbers))
            self._table[line] = describe(frame, callee, leaf.f_code)
        if self._reads_values and self._user.owns(frame.f_code):
            self._note_values(key[:2], frame)
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

    def _blamed(self, leaf: FrameType) -> tuple[FrameType, str]:
        """The innermost frame of the user's code and what it calls, else the innermost one that is not the probe's."""
        frame: FrameType | None = leaf
        callee, otherwise = "", leaf
        for _ in range(_MOST_DEPTH):
            if frame is None:
                break
            if self._user.owns(frame.f_code):
                return frame, callee
            name = frame.f_code.co_qualname
            wrapper = "<locals>" in name  # a decorator's, which says nothing
            if not wrapper and not self._user.is_probe(frame.f_code):
                callee = name
            if self._user.is_probe(otherwise.f_code):
                otherwise = frame
            frame = frame.f_back
        return otherwise, ""


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
    inner = f"{leaf.co_filename.rpartition(os.sep)[2].removesuffix('.py')}.{leaf.co_qualname}"
    return [frame.f_code.co_filename, line_of(frame), frame.f_code.co_qualname, callee, inner]


def _ended(gate: threading.Lock, wait_s: float) -> bool:
    """Waits, and then for the interpreter's lock: only as long as one line of Python may take.

    A thread that waits for the lock gets it at once where the training thread lets go of it, and has it taken away only
    after the switch interval, 5 ms: lines that compute for less would never be met. With other threads in the script
    the interval stays theirs, as they would take turns at each line.
    """
    if threading.active_count() > _TWO:
        return gate.acquire(timeout=wait_s)
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_PROMPT_S)
    try:
        return gate.acquire(timeout=wait_s)  # one call into C: cheaper than an Event
    finally:
        if sys.getswitchinterval() < 2 * _PROMPT_S:  # else the script has set it meanwhile
            sys.setswitchinterval(usual)


def _hold_signals() -> None:
    """A signal that the script waits for in one of its own threads must not come to this one."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())


def _wake_promptly() -> None:
    """Linux lets a waiting thread sleep 50 us longer than it asked for. By then the training thread has left its line
    of Python, and is met in the next call that lets go of the lock."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(1), 0, 0, 0)


# What a line's values are: types, shapes and devices by name, read off a frame while the sampler looks at it.
#
# Nothing of the script is called, and nothing is kept of its values but these words.


_MOST_NAMES, _MOST_ENTRIES, _MOST_BASES = 96, 24, 6
_LOOKS_ITSELF = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint"})
_OF_FRAMES = frozenset({"_getframe", "currentframe"})
"""Functions that use these could meet the dictionary in which Python hands out a frame's variables."""
_WITHIN = frozenset({"<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>"})
_MODULE_LIST = "torch.nn.modules.container.ModuleList"
_PARTS = ("_parameters", "_buffers", "_modules")  # where a module keeps its attributes


def values_of(frame: FrameType, *, traced: bool = False) -> dict[str, str]:
    """By name, such as `x`, `self.x` or `batch['x']`, what it is; of the enclosing function too.

    Not for a thread that has a trace function: Python writes the dictionary of variables back to the frame behind each
    call of it. With `traced`, the trace function itself is asking, and the dictionary is left as it is.
    """
    found: dict[str, str] = {}
    names = set(frame.f_code.co_names)
    around = frame.f_back
    within = frame.f_code.co_name in _WITHIN
    if within and around is not None and around.f_code.co_filename == frame.f_code.co_filename:
        names |= set(around.f_code.co_names)
        _read(around, names, found, traced)
    _read(frame, names, found, traced)
    return found


def _read(frame: FrameType, names: set[str], found: dict[str, str], traced: bool) -> None:
    code = frame.f_code
    if _looks_itself(code) or (frame.f_trace is not None and not traced):
        return
    shared = frame.f_globals
    for name in names:
        if name in shared and not isinstance(shared[name], ModuleType | FunctionType | type):
            _tell(name, shared[name], names, found)
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return  # a module's or a class's own statements: their variables are the globals
    held = frame.f_locals
    try:
        for name, value in list(held.items()):
            _tell(name, value, names, found)
    finally:
        if (
            type(held) is dict and not traced
        ):  # before Python 3.13 the frame keeps it, and with it every value, alive
            held.clear()


def _looks_itself(code: CodeType) -> bool:
    """Not for `model.eval()`: attributes are among a code's names too."""
    named = set(code.co_names)
    if not named & (_LOOKS_ITSELF | _OF_FRAMES):
        return False
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    called = {each.argval for each in dis.get_instructions(code) if each.opname in loads}
    return bool(called & _LOOKS_ITSELF or named & _OF_FRAMES)


def _tell(name: str, value: Any, names: set[str], found: dict[str, str]) -> None:
    if len(found) >= _MOST_NAMES or name.startswith("."):
        return
    found[name] = described(value)
    if type(value) is dict:
        for key, entry in list(value.items())[:_MOST_ENTRIES]:
            if isinstance(key, str):
                found[f"{name}[{key!r}]"] = described(entry)
        return
    for attribute, inner in _attributes(value):
        if attribute in names and len(found) < _MOST_NAMES:
            found[f"{name}.{attribute}"] = described(inner)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Those in its own dictionary: to ask for others would run code of the script."""
    if type(value).__module__ in ("builtins", "torch", "numpy"):
        return
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return
    if type(own) is not dict:
        return
    yield from list(own.items())
    for part in _PARTS:
        if type(own.get(part)) is dict:
            yield from list(own[part].items())


def described(value: Any, *, inner: bool = True) -> str:
    """In words that `ports.rewrite.Value` reads."""
    kind = type(value)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        dtype = str(value.dtype).removeprefix("torch.")
        grad = " grad" if value.requires_grad else ""
        return f"torch.Tensor {dtype} {_shape(value.shape)} {value.device.type}{grad}"
    if numpy is not None and kind is numpy.ndarray:
        return f"numpy.ndarray {value.dtype} {_shape(value.shape)}"
    if kind in (list, tuple, dict):
        first = next(iter(value.values() if kind is dict else value), None)
        of = f" {described(first, inner=False)}" if inner and first is not None else ""
        return f"{kind.__name__} {len(value)}{of}"
    if kind.__module__ == "builtins":
        return kind.__name__
    bases = [_name(each) for each in kind.__mro__[1:] if each.__module__ != "builtins"]
    return " ".join([_name(kind), *bases[:_MOST_BASES], *_children(kind, value)])


def _children(kind: type, value: Any) -> list[str]:
    """Of a list of modules that are all of one type, that type: `each=torch.nn.modules.linear.Linear+bias`."""
    if _name(kind) != _MODULE_LIST:
        return []
    inner = [each for each in value.__dict__["_modules"].values() if each is not None]
    if not inner or len({type(each) for each in inner}) > 1:
        return []
    biases = {each.__dict__.get("_parameters", {}).get("bias") is not None for each in inner}
    if len(biases) > 1:
        return []
    return [f"each={_name(type(inner[0]))}{'+bias' if biases.pop() else ''}"]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".replace(" ", "")


def _shape(shape: Any) -> str:
    return "x".join(str(int(each)) for each in shape) or "scalar"


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


def _open() -> int:
    try:
        return os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
    except OSError:
        return -1
