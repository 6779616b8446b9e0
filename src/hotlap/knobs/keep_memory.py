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
        return churn_share(timeline, host, summarise(timeline).step_ms)

    def apply(self, target: Process, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        libc: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
        if not hasattr(libc, "gnu_get_libc_version"):
            raise CannotActError("the C library here is not glibc")
        libc.mallopt(_MMAP_MAX, 0)
        libc.mallopt(_TRIM_THRESHOLD, _NEVER)

        def undo() -> None:
            libc.mallopt(_MMAP_MAX, _USUAL_MAPS)
            libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM)
            # But a gap below what is in use stays, and blocks that fit it go on to use it.
            libc.malloc_trim(0)

        return undo
