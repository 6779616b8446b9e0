"""A batch in a slot: tensors and arrays lie there as they are, and a pickle beside them says how they belong together.

Tensors keep their dtype, sizes and strides. What is not a plain dense CPU tensor is pickled as ever.
"""

from __future__ import annotations

import io
import math
import mmap
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

ALIGN = 64
LEAST_OUT_OF_BAND = 1024  # smaller arrays cost less inside the pickle


@dataclass(frozen=True)
class Written:
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


def write(data: Any, arena: Arena) -> Written:
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
    return Written(start, len(content) + 1)


def read(array: np.ndarray[Any, Any], written: Written) -> Any:
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
