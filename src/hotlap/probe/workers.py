"""Workers that are started again each epoch leave files behind, without end: some are kept, from the first to the last.

All are kept at first; then those of every second start, of every fourth, and so on, as with the windows of a long run.
"""

from __future__ import annotations

import os
import select
import threading
from dataclasses import dataclass
from pathlib import Path

WORKERS_BYTES = 8 << 20  # of one loader's workers together: a run of a million steps stays under 64 MB
_MOST_STARTS = 32  # each leaves three files for every worker
_MAY_RUN = 2  # starts whose workers may still be writing: the latest, and one that is just being ended
_SUFFIXES = (".marks", ".samples", ".json")


@dataclass
class _Start:
    number: int
    pids: dict[str, int]  # to the worker's own number
    bytes: int | None = None  # known once they have ended


class Generations:
    """The starts of one loader's workers whose files are kept."""

    def __init__(self, folder: Path, limit: int = WORKERS_BYTES) -> None:
        self._folder = folder
        self._limit = limit
        self._stride = 1
        self._kept: list[_Start] = []
        self.started = 0

    @property
    def pids(self) -> dict[str, int]:
        """The processes whose files are kept, each with its number among its loader's workers."""
        return {pid: number for start in self._kept for pid, number in start.pids.items()}

    def begin(self, pids: dict[str, int]) -> None:
        """The loader was iterated by these workers: new ones, unless they persist."""
        if not pids or (self._kept and self._kept[-1].pids == pids):
            return
        for start in self._kept:  # a system that runs out of numbers gives them again
            start.pids = {pid: number for pid, number in start.pids.items() if pid not in pids}
        self._kept.append(_Start(self.started, pids))
        self.started += 1
        self._thin_out()

    def _thin_out(self) -> None:
        self._drop_between()
        while self._is_too_much() and self._stride < self.started:
            self._stride *= 2
            self._drop_between()

    def _is_too_much(self) -> bool:
        return len(self._kept) > _MOST_STARTS or sum(map(self._size, self._ended())) > self._limit

    def _ended(self) -> list[_Start]:
        return self._kept[:-_MAY_RUN]

    def _drop_between(self) -> None:
        for start in self._ended():
            if start.number % self._stride:
                self._kept.remove(start)
                for path in self._files(start):
                    path.unlink(missing_ok=True)

    def _size(self, start: _Start) -> int:
        if start.bytes is None:
            start.bytes = sum(path.stat().st_size for path in self._files(start) if path.exists())
        return start.bytes

    def _files(self, start: _Start) -> list[Path]:
        return [self._folder / f"{pid}{suffix}" for pid in start.pids for suffix in _SUFFIXES]


# Ends a data-loading worker as soon as the training process is gone, whatever ended that.
#
# torch's workers look for their parent when they have waited for 5 s without an order, and until then keep
# its memory, its devices and its place in /dev/shm.


_ORPHANED = 1  # the exit code, which nobody is left to ask for
_watched: set[int] = set()  # processes that do so already: two of hotlap's wrappers may ask


def end_with_parent() -> None:
    """Called in a worker. Where the system has no file for a process, torch's own look has to do."""
    if os.getpid() in _watched or not hasattr(os, "pidfd_open"):
        return
    parent = os.getppid()
    try:
        file = os.pidfd_open(parent)
    except OSError:  # it has ended already, or the kernel is too old
        file = -1
    if os.getppid() != parent:
        os._exit(_ORPHANED)
    if file >= 0:
        _watched.add(os.getpid())
        threading.Thread(target=_wait_for, args=(file,), name="hotlap-parent", daemon=True).start()


def _wait_for(file: int) -> None:
    ended = select.poll()
    ended.register(file, select.POLLIN)
    while not ended.poll():
        pass
    os._exit(_ORPHANED)
