"""Wakes the sampler's thread at a moment that the script did not choose.

A thread gets the interpreter's lock where the other one lets go of it: at a call into C that releases it, else after
the switch interval of 5 ms. Looks taken there would meet the lines that release the lock, and hardly ever those
that compute. So a look has two parts: wait for the lock wherever it is given, then for a random time, and ask again
with a switch interval so short that the lock is given at the next bytecode.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading

from hotlap.probe import boundary

_AT_ONCE_S = 1e-6
_SPREAD_S = 0.005  # longer than most items take, so that every part of them is met
_PR_SET_TIMERSLACK = 29
_SLACK_NS = 1_000  # Linux adds 50 us to every wait of a thread unless it asks for less


class Impartial:
    """Of one thread, which calls it."""

    def __init__(self) -> None:
        self._random = random.Random(0)  # its own, so that the script's numbers stay the same
        boundary.attempt(_wake_in_time)

    def wait(self, gate: threading.Lock, seconds: float) -> bool:
        """Sleep about so long, then return at any line of the script; True at once when the gate is opened."""
        spread = min(_SPREAD_S, seconds / 2)
        if gate.acquire(timeout=seconds - spread / 2):
            return True
        usual = sys.getswitchinterval()
        sys.setswitchinterval(_AT_ONCE_S)
        try:
            return gate.acquire(timeout=self._random.random() * spread)
        finally:
            sys.setswitchinterval(usual)


def _wake_in_time() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, _SLACK_NS, 0, 0, 0)
