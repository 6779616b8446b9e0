"""How fast the machine is right now: a fixed piece of work that has nothing to do with any job.

Runs of today and of last week cannot be run in turn. Measured beside both, this work tells what the machine itself has
gained or lost in between: a busier neighbour, another clock speed, a throttled container.
"""

from __future__ import annotations

import os
import time
from statistics import median

from hotlap.launch.worth import slowest

_ROUNDS = 100_000  # of integer arithmetic
_COPIES, _BUFFER = 2, 16 << 20  # copying memory: larger than most caches
_REPEATS = 11  # about a second in all; the middle one counts
_MOST = 64  # processes at once


def pace(cores: int) -> float | None:
    """Pieces of work a second when all cores are at it; None where processes cannot be forked."""
    if not hasattr(os, "fork"):
        return None
    count = max(1, min(cores, _MOST))
    return 1.0 / median(slowest(count, _work) for _ in range(_REPEATS))


def _work() -> float:
    started, total = time.perf_counter(), 0
    for number in range(_ROUNDS):
        total += number * number
    buffer = bytearray(_BUFFER)
    for _ in range(_COPIES):
        buffer = bytearray(buffer)
    return time.perf_counter() - started
