"""Counts the pages of memory that the system hands out in a step, and what one of them costs on this machine.

An allocator that gives freed memory back must ask for it again in the next step: the system then clears each page
and maps it, at the first touch, in the middle of whatever operator wrote there.
"""

from __future__ import annotations

import ctypes
import mmap
from itertools import pairwise
from pathlib import Path

from hotlap.probe.session import Session, now

_FIRST, _LAST = 8, 24  # steps: the allocator has met the sizes of a step by then
_SAMPLE = 512  # pages that are touched to learn what one costs
_SAMPLES = 3
_STATUS = Path("/proc/self/statm")


def install(session: Session) -> None:
    if not _STATUS.is_file():
        return
    session.facts["page_ns"] = page_ns()  # now: within a step it would be as long as a stage
    step = kept = 0
    counts: list[int] = []

    def count() -> bool:
        nonlocal step, kept
        step += 1
        if step >= _FIRST:
            counts.append(_handed_out())
        if step == _FIRST:
            kept = _resident()
        elif step == _LAST:
            stays = max(0, _resident() - kept) / (_LAST - _FIRST)
            session.facts["pages_per_step"] = max(0, _usual(counts) - stays)
        return step < _LAST

    session.step_ends.append(count)


def _usual(counts: list[int]) -> int:
    """Of a step in the middle: validation, a new epoch and compiling ask for more than a step does."""
    steps = sorted(after - before for before, after in pairwise(counts))
    return steps[len(steps) // 2]


def _handed_out() -> int:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _resident() -> int:
    """Pages that the process holds: what stays was not asked for again."""
    return int(_STATUS.read_text(encoding="ascii").split()[1])


def page_ns() -> int:
    """What the first touch of a page takes longer than the second one; the least of several, since others may run."""
    return min(_sampled() for _ in range(_SAMPLES))


def _sampled() -> int:
    size = _SAMPLE * mmap.PAGESIZE
    with mmap.mmap(-1, size) as memory:
        window = ctypes.c_char.from_buffer(memory)
        before, moments = _handed_out(), [now()]
        for _ in range(2):
            ctypes.memset(ctypes.addressof(window), 0, size)
            moments.append(now())
        # Fewer than were asked for, where the system hands out huge ones.
        pages = max(1, _handed_out() - before)
        del window  # which holds the memory
    return max(0, (moments[1] - moments[0]) - (moments[2] - moments[1])) // pages
