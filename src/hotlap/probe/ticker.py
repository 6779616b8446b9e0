"""Calls back in the main thread at regular moments, between two bytecodes, wherever the script happens to be.

A second thread cannot look at Python code fairly: it gets the interpreter's lock where the script lets go of it, so
it would meet the lines that release the lock and hardly ever those that compute. The Python handler of a signal runs
in the main thread at the next bytecode. SIGURG is taken since a process without a handler for it ignores it. System
calls that it interrupts are restarted, by the kernel (SA_RESTART) or by Python (PEP 475). Linux only.

A script that wants the signal for itself gets it: one with a handler of its own is left alone, and whoever takes the
signal while the ticker runs makes it stop.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from hotlap.probe import boundary

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD_ID = 4
_AT_ONCE_S = 0.001
_ACTION_BYTES = 256  # more than a struct sigaction of any libc; the address of the function comes first


class _Event(ctypes.Structure):
    """struct sigevent of 64-bit Linux."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signo", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_int * 11),
    )


class _Times(ctypes.Structure):
    """struct itimerspec."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every_s", "every_ns", "first_s", "first_ns"))


class Ticker:
    """Between `start` and `stop`; `ticks` says whether it could be started."""

    def __init__(self, call: Callable[[FrameType], None]) -> None:
        self._call = call
        self._timer = ctypes.c_void_p()
        self._has_timer = False
        self._action = 0  # what the system calls at the signal, while it is Python's
        self.ticks = False

    def start(self, seconds: float) -> None:
        if self.ticks or not _can_tick():
            return
        self._remove_timer()
        signal.signal(signal.SIGURG, self._ticked)
        signal.siginterrupt(signal.SIGURG, False)
        event = _Event(signo=signal.SIGURG, notify=_SIGEV_THREAD_ID, thread=threading.get_native_id())
        failed = _libc().timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))
        if failed:  # too many signals may be waiting already (RLIMIT_SIGPENDING)
            self._give_back()
            return
        self._action = _action()
        self._has_timer = self.ticks = True
        self.pace(seconds)

    def pace(self, seconds: float) -> None:
        """From now on, this often."""
        if self.ticks:
            self._set(seconds, seconds)

    def yields(self) -> bool:
        """Stop if someone else has taken the signal meanwhile; from any thread, now and then."""
        if self.ticks and not (_is_ours() and _action() == self._action):
            self.ticks = False
            self._remove_timer()
        return not self.ticks

    def stop(self) -> None:
        """No more calls, and the signal is as it was. Only the main thread may set that: from others, it does soon."""
        if not self.ticks:
            return
        self.ticks = False
        if threading.current_thread() is threading.main_thread():
            self._remove_timer()
            self._give_back()
        else:
            self._set(0, _AT_ONCE_S)

    def forget(self) -> None:
        """After a fork: the timer stayed with the parent."""
        self.ticks = self._has_timer = False
        self._give_back()

    def _ticked(self, _: int, frame: FrameType | None) -> None:
        boundary.attempt(self._tick, frame)

    def _tick(self, frame: FrameType | None) -> None:
        if not self.ticks:
            self._remove_timer()
            self._give_back()
        elif _is_told_of_signals():
            self.stop()  # an event loop, which would be woken at every tick
        elif frame is not None:
            self._call(frame)

    def _set(self, every_s: float, first_s: float) -> None:
        every, first = (divmod(round(each * 1e9), 1_000_000_000) for each in (every_s, first_s))
        _libc().timer_settime(self._timer, 0, ctypes.byref(_Times(*every, *first)), None)

    def _remove_timer(self) -> None:
        if self._has_timer:
            self._has_timer = False
            _libc().timer_delete(self._timer)

    def _give_back(self) -> None:
        if _is_ours():
            # A tick on its way is run by `signal` before it changes anything, so that none comes too late.
            signal.signal(signal.SIGURG, signal.SIG_DFL)


def _can_tick() -> bool:
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False  # only there may a handler be set, and only there it runs
    if not _is_ours() and signal.getsignal(signal.SIGURG) is not signal.SIG_DFL:
        return False
    try:
        return not _is_told_of_signals()
    except ValueError:
        return False  # a subinterpreter, which gets no signals


def _is_ours() -> bool:
    return getattr(signal.getsignal(signal.SIGURG), "__func__", None) is Ticker._ticked


def _is_told_of_signals() -> bool:
    """Whether each signal that Python handles is also written to a file, as event loops ask for."""
    told = signal.set_wakeup_fd(-1)
    if told >= 0:
        signal.set_wakeup_fd(told)
    return told >= 0


def _action() -> int:
    """The address that the system calls: libraries may take a signal without Python's knowing."""
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    _libc().sigaction(signal.SIGURG, None, action)
    return int.from_bytes(action.raw[: ctypes.sizeof(ctypes.c_void_p)], sys.byteorder)


@functools.cache
def _libc() -> Any:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1")
