"""How much more work all cores do than one: two threads of one core, or a throttled container, do not do twice as much.

Virtual machines often hide that their cores are hyper-threads, so it is measured: the same small piece of work in one
process, and in as many at once as there are cores.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

_WORK = 300_000  # rounds of a loop: some ten milliseconds, much longer than starting a process
_REPEATS = 3  # the quickest counts: others may be busy
_MOST = 64  # processes at once


def measured_worth(cores: int) -> float | None:
    """Cores' worth of work when all of them are busy; None where processes cannot be forked."""
    if not hasattr(os, "fork") or cores < 2:
        return None
    count = min(cores, _MOST)
    alone, together = [], []
    for _ in range(_REPEATS):  # in turn, so that a passing disturbance does not hit only one of them
        alone.append(slowest(1, _work))
        together.append(slowest(count, _work))
    return round(max(1.0, cores * min(1.0, min(alone) / min(together))), 2)


def slowest(count: int, work: Callable[[], float]) -> float:
    """Seconds that the slowest of so many processes takes, all at work at once."""
    source, sink = os.pipe()
    children = [_child(sink, work) for _ in range(count)]
    os.close(sink)
    told = b""
    while part := os.read(source, 4096):
        told += part
    os.close(source)
    for child in children:
        os.waitpid(child, 0)
    return max((float(line) for line in told.split()), default=float("inf"))


def _child(sink: int, work: Callable[[], float]) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.write(sink, f"{work():.9f}\n".encode())
        finally:
            os._exit(0)
    return child


def _work() -> float:
    started, total = time.perf_counter(), 0
    for number in range(_WORK):
        total += number * number
    return time.perf_counter() - started
