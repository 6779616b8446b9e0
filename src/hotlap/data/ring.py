"""Slots of shared memory, faulted in before use, that are used again and again.

The memory has no name (memfd), so nothing can be left behind, however a process ends. A slot that the consumer's
tensors view comes back by itself when the last of them has died.
"""

from __future__ import annotations

import mmap
import os
import weakref
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

PAGE = mmap.ALLOCATIONGRANULARITY
SMALLEST = 16 * PAGE
HEADROOM = 1.25  # a batch that is a little larger than those before still fits

_rings: weakref.WeakSet[Ring] = weakref.WeakSet()
_own_fork = False


@dataclass(eq=False)
class Slot:
    """A part of the ring's memory. `retired`: not to be used again."""

    handle: int
    offset: int
    size: int
    retired: bool = False

    @cached_property
    def memory(self) -> mmap.mmap:
        """Mapped when a batch is first read from it: by then the worker has faulted the pages in, at its own cost."""
        return map_slot(self.handle, self.offset, self.size)

    def put(self, content: bytes) -> None:
        """At the front; without a mapping."""
        os.pwrite(self.handle, content, self.offset)


def map_slot(handle: int, offset: int, size: int) -> mmap.mmap:
    """The same pages in this process. Populated at once: faults would cost more than the copy of a batch."""
    flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
    return mmap.mmap(handle, size, flags, mmap.PROT_READ | mmap.PROT_WRITE, offset=offset)


class Ring:
    """Hands out slots, within a budget of bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.slot_size = SMALLEST
        self.handle = os.memfd_create("hotlap-ring")
        self._close = weakref.finalize(self, os.close, self.handle)
        self._end = 0
        self._slots: set[Slot] = set()
        self._free: list[Slot] = []
        self._lent: set[Slot] = set()
        self._returned: deque[Slot] = deque()  # filled by finalizers, from any thread
        _rings.add(self)

    @property
    def lent(self) -> int:
        """How many slots the consumer's tensors view."""
        self._collect()
        return len(self._lent)

    @property
    def bytes(self) -> int:
        return sum(slot.size for slot in self._slots)

    def expect(self, size: int) -> None:
        """Batches of this size are coming: slots of less are given up as they come back."""
        if size > self.slot_size:
            self.slot_size = _pages(int(size * HEADROOM))

    def take(self, must: bool = False) -> Slot | None:
        """A free slot of the size of the day; None where the budget is spent, unless one is a must."""
        self._collect()
        while self._free:
            slot = self._free.pop()
            if slot.size >= self.slot_size:
                return slot
            self._drop(slot)
        if not must and self.bytes + self.slot_size > self.budget:
            return None
        return self._new()

    def give_back(self, slot: Slot) -> None:
        if slot.retired or slot.size < self.slot_size:
            self._drop(slot)
        else:
            self._free.append(slot)

    def lend(self, slot: Slot) -> np.ndarray[Any, Any]:
        """The slot as an array; when it and all that views it have died, the slot comes back."""
        array = np.frombuffer(slot.memory, np.uint8)
        self._lent.add(slot)
        weakref.finalize(array, self._returned.append, slot).atexit = False
        return array

    def retire_lent(self) -> None:
        """A process was forked that sees the consumer's tensors: what it sees must not change under it."""
        self._collect()
        for slot in self._lent:
            slot.retired = True

    def _collect(self) -> None:
        while self._returned:
            slot = self._returned.popleft()
            self._lent.discard(slot)
            self.give_back(slot)

    def _new(self) -> Slot:
        size = self.slot_size
        os.ftruncate(self.handle, self._end + size)
        slot = Slot(self.handle, self._end, size)
        self._end += size
        self._slots.add(slot)
        return slot

    def _drop(self, slot: Slot) -> None:
        self._slots.discard(slot)
        if not slot.retired and "memory" in vars(slot):
            with suppress(OSError, AttributeError, ValueError):
                slot.memory.madvise(mmap.MADV_REMOVE)  # gives the pages back to the system


class own_fork:  # noqa: N801 (reads as a statement)
    """Around the start of a worker, which does not look at the consumer's tensors."""

    def __enter__(self) -> None:
        global _own_fork
        _own_fork = True

    def __exit__(self, *_: object) -> None:
        global _own_fork
        _own_fork = False


def _forked() -> None:
    if not _own_fork:
        for ring in list(_rings):
            ring.retire_lent()


os.register_at_fork(after_in_parent=_forked)


def available() -> bool:
    """Nameless shared memory is a thing of Linux."""
    return hasattr(os, "memfd_create")


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE
