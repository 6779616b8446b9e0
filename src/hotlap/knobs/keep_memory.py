"""Keep freed memory in the process.

What it does
    Tells the C library (glibc's `mallopt`) to serve large blocks from its own heap as well, and never to give memory
    back to the system. What a step frees is there for the next one.
When it helps
    Models with large activations on the CPU. Blocks above 32 MiB otherwise come from the system and go back to it in
    every step, and each of their pages is cleared and mapped again when it is first touched.
What it costs
    The process stays as large as it ever was, and blocks of many sizes may leave gaps that nothing fits in. Workers
    that are forked do the same.
Numerics
    None.
"""

from __future__ import annotations

import ctypes
import resource
import sys
from typing import Any

from hotlap.cost.reading import churn_share
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Flag

# Of malloc.h, and what glibc begins with; its own bound of trimming is twice the largest block that it met.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER, _USUAL_TRIM, _USUAL_MAPS = -1, 64 * 2**20, 65536
_ALWAYS_MAPPED = 32 * 2**20
"""glibc's largest threshold: by default, blocks above it come from the system."""


class KeepMemory(Knob):
    id = "keep-memory"
    relieves = frozenset({Cause.MEMORY_CHURN})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if self.ceiling(timeline, host) > 0 else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return churn_share(timeline, summarise(timeline).step_ms)

    def apply(self, target: Process, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
        if not hasattr(libc, "gnu_get_libc_version"):
            raise CannotActError("the C library here is not glibc")
        for answers_address in (libc.malloc, libc.sbrk):
            answers_address.restype = ctypes.c_void_p
        libc.malloc.argtypes = libc.sbrk.argtypes = (ctypes.c_ssize_t,)
        libc.free.argtypes = (ctypes.c_void_p,)
        while _fillers:
            libc.free(_fillers.pop())
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, _NEVER)

        def undo() -> None:
            libc.mallopt(_MMAP_MAX, _USUAL_MAPS)
            libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
            libc.malloc_trim(0)
            _fill_gaps(libc)

        return undo


_fillers: list[int] = []
"""Blocks that fill the gaps of the heap while the knob is off. Nobody touches them, so they hold no memory."""


def _fill_gaps(libc: Any) -> None:
    """A gap below memory in use cannot be given back, and malloc would serve large blocks from it, as if the knob were
    still on."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # no gap is larger
    while size >= _ALWAYS_MAPPED:
        block = libc.malloc(size)
        if block and block < libc.sbrk(0):
            _fillers.append(block)
            continue
        libc.free(block)  # this one came from the system: no gap is left that is as large
        size //= 2
