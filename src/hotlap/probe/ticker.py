"""Calls back in the main thread at regular moments, between two bytecodes, wherever the script happens to be.

A second thread cannot look at Python code fairly: it gets the interpreter's lock where the script lets go of it, so
it would meet the lines that release the lock and hardly ever those that compute. The Python handler of a signal runs
in the main thread at the next bytecode. SIGURG is taken since a process without a handler for it ignores it. System
calls that it interrupts are restarted, by the kernel (SA_RESTART) or by Python (PEP 475). Linux only.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from hotlap.probe import boundary

_CLOCK_MONOTONIC = 1
_SIGEV_THREAD_ID = 4


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
        self.ticks = False

    def start(self, seconds: float) -> None:
        if not self.ticks and _can_tick():
            signal.signal(signal.SIGURG, self._ticked)
            signal.siginterrupt(signal.SIGURG, False)
            event = _Event(signo=signal.SIGURG, notify=_SIGEV_THREAD_ID, thread=threading.get_native_id())
            failed = _libc().timer_create(_CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer))
            self.ticks = not failed
            self.pace(seconds)

    def pace(self, seconds: float) -> None:
        """From now on, this often."""
        if self.ticks:
            whole, rest = divmod(round(seconds * 1e9), 1_000_000_000)
            _libc().timer_settime(self._timer, 0, ctypes.byref(_Times(whole, rest, whole, rest)), None)

    def stop(self) -> None:
        if self.ticks:
            self.ticks = False
            _libc().timer_delete(self._timer)

    def forget(self) -> None:
        """After a fork: the timer stayed with the parent."""
        self.ticks = False

    def _ticked(self, _: int, frame: FrameType | None) -> None:
        if self.ticks and frame is not None:
            boundary.attempt(self._call, frame)


def _can_tick() -> bool:
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False  # only there may a handler be set, and only there it runs
    ours = getattr(signal.getsignal(signal.SIGURG), "__func__", None) is Ticker._ticked
    return ours or signal.getsignal(signal.SIGURG) is signal.SIG_DFL


def _libc() -> Any:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1")
