"""Slots of shared memory, faulted in before use, that are used again and again.

The memory has no name (memfd), so nothing can be left behind, however a process ends. A slot that the consumer's
tensors view comes back by itself when the last of them has died.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

PAGE = mmap.ALLOCATIONGRANULARITY
SMALLEST = 16 * PAGE
HEADROOM = 1.25  # a batch that is a little larger than those before still fits

_rings: weakref.WeakSet[SlotPool] = weakref.WeakSet()
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


class SlotPool:
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


# A batch in a slot: tensors and arrays lie there as they are, and a pickle beside them says how they belong together.
#
# Tensors keep their dtype, sizes and strides. What is not a plain dense CPU tensor is pickled as ever.


ALIGN = 64
LEAST_OUT_OF_BAND = 1024  # smaller arrays cost less inside the pickle


@dataclass(frozen=True)
class PickleExtent:
    """Where the pickle lies. Everything before `start + length` is part of the batch."""

    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length


class DoesNotFitError(Exception):
    """The slot is too small; `need` is enough."""

    def __init__(self, need: int) -> None:
        super().__init__(need)
        self.need = need


class Arena:
    """Room in one slot, given out from the front; counts on where there is none, to know what would be enough."""

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.size = len(memory)
        self.used = 0
        self.base = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()

    def place(self, count: int) -> int | None:
        at = -(-self.used // ALIGN) * ALIGN
        self.used = at + count
        return at if self.used <= self.size else None

    def tensor(self, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor | None:
        """An empty tensor in the slot; None where it is empty or does not fit."""
        count, used = math.prod(shape), self.used
        at = self.place(count * dtype.itemsize) if count else None
        if at is None:
            self.used = used
            return None
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=at).view(tuple(shape))

    def offset_of(self, tensor: torch.Tensor) -> int | None:
        """Where a tensor lies that was collated straight into the slot."""
        at = tensor.untyped_storage().data_ptr() - self.base
        if not 0 <= at < self.size:
            return None
        return at + int(tensor.storage_offset()) * tensor.element_size()


def write(data: Any, arena: Arena) -> PickleExtent:
    """Put a batch into the arena's slot; raises DoesNotFitError."""
    buffers: list[tuple[int, int]] = []
    stream = io.BytesIO()
    pickler = _Pickler(stream, arena, buffers)
    pickler.dump(data)
    content = pickle.dumps((stream.getvalue(), buffers), protocol=5) if buffers else stream.getvalue()
    start = arena.place(len(content) + 1)
    if start is None:
        raise DoesNotFitError(arena.used + ALIGN)
    arena.memory[start] = bool(buffers)
    arena.memory[start + 1 : start + 1 + len(content)] = content
    return PickleExtent(start, len(content) + 1)


def read(array: np.ndarray[Any, Any], written: PickleExtent) -> Any:
    """The batch; its tensors view `array` and keep it alive."""
    view = array.data
    content: Any = view[written.start + 1 : written.end]
    buffers: list[memoryview] = []
    if array[written.start]:
        content, places = pickle.loads(content)
        buffers = [view[at : at + count] for at, count in places]
    outer, _reading.array = getattr(_reading, "array", None), array
    try:
        return pickle.loads(content, buffers=buffers)
    finally:
        _reading.array = outer


_reading = threading.local()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, arena: Arena, buffers: list[tuple[int, int]]) -> None:
        super().__init__(stream, protocol=5, buffer_callback=self._aside)
        self._arena, self._buffers = arena, buffers

    def _aside(self, buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < LEAST_OUT_OF_BAND:
                return True
            at = self._arena.place(raw.nbytes)
            if at is not None:
                self._arena.memory[at : at + raw.nbytes] = raw
                self._buffers.append((at, raw.nbytes))
        return False

    def reducer_override(self, thing: Any) -> Any:
        if type(thing) is not torch.Tensor or not is_plain(thing):
            return NotImplemented
        at = self._arena.offset_of(thing)
        if at is None:
            at = self._copied(thing)
        return _tensor_at, (at, thing.dtype, tuple(thing.shape), thing.stride())

    def _copied(self, thing: torch.Tensor) -> int:
        at = self._arena.place(thing.numel() * thing.element_size())
        if at is None:
            return 0  # goes on, to learn how much room would be enough
        flat = torch.frombuffer(self._arena.memory, dtype=thing.dtype, count=thing.numel(), offset=at)
        flat.as_strided(thing.shape, thing.stride()).copy_(thing)
        return at


def is_plain(tensor: torch.Tensor) -> bool:
    """Dense numbers on the CPU, each element once, nothing that hangs on to it."""
    return (
        tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_nested
        and not tensor.is_conj()
        and not tensor.is_neg()
        and tensor.numel() > 0
        and not tensor.__dict__
        and (tensor.is_contiguous() or _fills_its_memory(tensor))
    )


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _tensor_at(at: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    flat = torch.frombuffer(_reading.array, dtype=dtype, count=extent, offset=at)
    return flat.as_strided(shape, stride)


Collate = Callable[..., Any]


def collate_straight_into(arena: Callable[[], Arena | None], original: Collate) -> Collate:
    """torch's collate of tensors, into the slot of the batch under way where there is one."""

    def collate(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
        first = batch[0]
        alike = all(
            type(each) is torch.Tensor and each.dtype is first.dtype and not each.requires_grad
            for each in batch
        )
        if not alike or first.is_nested or first.layout is not torch.strided or first.device.type != "cpu":
            return _without_sharing(original, batch, collate_fn_map)
        room = arena()
        out = room.tensor(first.dtype, (len(batch), *first.shape)) if room is not None else None
        return torch.stack(list(batch), 0, out=out)

    return collate


def _without_sharing(original: Collate, batch: Sequence[torch.Tensor], collate_fn_map: Any) -> torch.Tensor:
    """As torch does outside of workers: inside, it would open shared memory of its own for each tensor."""
    from torch.utils.data._utils import worker

    info, worker._worker_info = worker._worker_info, None
    try:
        stacked: torch.Tensor = original(batch, collate_fn_map=collate_fn_map)
        return stacked
    finally:
        worker._worker_info = info
