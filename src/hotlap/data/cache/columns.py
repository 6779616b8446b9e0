"""A column of the cache, read: one value, many values, or a whole batch by one gather."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from hotlap.data.cache import pickles
from hotlap.data.cache.encode import itemsize, rows_of
from hotlap.data.cache.shape import Leaf, hole_of

Rows = NDArray[np.int64]


class Column:
    """Values of one leaf over all items. Subclasses know how they lie in memory; here nothing needs to be kept."""

    def __init__(self, leaf: Leaf) -> None:
        self.leaf = leaf
        self._only = hole_of(leaf) if leaf.kind == "hole" else None

    def value(self, row: int) -> Any:  # noqa: ARG002
        return self._only

    def values(self, rows: Rows) -> list[Any]:
        return [self.value(row) for row in rows.tolist()]

    def gather(self, rows: Rows) -> torch.Tensor | None:  # noqa: ARG002
        """Values of all rows in one tensor; None where this column does not make one."""
        return None


class Even(Column):
    """Values of one shape: tensors, arrays, numbers; one after the other or overlapping."""

    def __init__(self, leaf: Leaf, count: int, data: NDArray[np.uint8], starts: Rows | None) -> None:
        super().__init__(leaf)
        shape = leaf.shape or ()
        stored = [shape[dim] for dim in leaf.order]
        self._back = tuple(int(place) for place in np.argsort(leaf.order))
        self._starts = starts
        self._array = _overlapping(leaf, stored, count, data, starts is not None)
        self.tensor = _as_torch(self._array, leaf)
        self.turns = self._back != tuple(range(len(stored)))

    def value(self, row: int) -> Any:
        place = row if self._starts is None else int(self._starts[row])
        if self.leaf.kind == "tensor":
            assert self.tensor is not None
            return self._turned(self.tensor[place].clone())
        found = self._array[place]
        if self.leaf.kind == "array":
            return np.array(found).transpose(self._back) if self._back else np.array(found)
        return found if self.leaf.kind == "scalar" else found.item()

    def values(self, rows: Rows) -> list[Any]:
        if self.leaf.kind == "tensor":
            gathered = self.gather(rows)
            assert gathered is not None
            return (
                [self._turned(each) for each in gathered.unbind(0)]
                if self.turns
                else list(gathered.unbind(0))
            )
        found = self._array[self._places(rows)]
        if self.leaf.kind == "array":
            return [each.transpose(self._back) for each in found] if self.turns else list(found)
        return list(found) if self.leaf.kind == "scalar" else list(found.tolist())

    def gather(self, rows: Rows) -> torch.Tensor | None:
        """In the order of the dimensions as they are stored, the batch first."""
        if self.tensor is None:
            return None
        with one_thread():
            return self.tensor.index_select(0, torch.from_numpy(self._places(rows)))

    def turned_batch(self, rows: Rows) -> torch.Tensor | None:
        """A batch with the dimensions in the order of the items, laid out anew."""
        batch = self.gather(rows)
        return None if batch is None else batch.permute(0, *(dim + 1 for dim in self._back)).contiguous()

    def _places(self, rows: Rows) -> Rows:
        return rows if self._starts is None else self._starts[rows]

    def _turned(self, value: torch.Tensor) -> torch.Tensor:
        return value.permute(self._back) if self.turns else value


class Ragged(Column):
    """Values of varying sizes, one after the other."""

    def __init__(self, leaf: Leaf, data: NDArray[np.uint8], sizes: Rows) -> None:
        super().__init__(leaf)
        self._data, self._sizes = data, sizes
        self._item = itemsize(leaf)
        self._ends = np.cumsum(np.prod(sizes, axis=1)) * self._item

    def value(self, row: int) -> Any:
        end = int(self._ends[row])
        size = self._sizes[row].tolist()
        content = self._data[end - math.prod(size) * self._item : end]
        return self._read(content, size)

    def _read(self, content: NDArray[np.uint8], size: list[int]) -> Any:
        leaf, kind = self.leaf, self.leaf.kind
        if kind == "tensor":
            plain = torch.empty([size[dim] for dim in leaf.order], dtype=getattr(torch, leaf.dtype))
            if plain.numel():
                plain.view(-1).view(torch.uint8).numpy()[:] = content
            return plain.permute(_inverse(leaf.order))
        if kind == "array":
            array = np.frombuffer(bytearray(content), leaf.dtype)
            return array.reshape([size[dim] for dim in leaf.order]).transpose(_inverse(leaf.order))
        if kind in ("ints", "floats"):
            return np.frombuffer(content.tobytes(), "<i8" if kind == "ints" else "<f8").tolist()
        plain_bytes = content.tobytes()
        if kind == "str":
            return plain_bytes.decode("utf-8", "surrogatepass")
        return plain_bytes if kind == "bytes" else pickles.loads(plain_bytes)


class Whole(Column):
    """A tensor that the script has in memory already, one row for each item."""

    def __init__(self, leaf: Leaf, tensor: torch.Tensor) -> None:
        super().__init__(leaf)
        self.tensor = tensor

    def value(self, row: int) -> Any:
        return self.tensor[row]

    def gather(self, rows: Rows) -> torch.Tensor:
        with one_thread():
            return self.tensor.index_select(0, torch.from_numpy(rows))


def column(leaf: Leaf, mode: str, count: int, parts: Mapping[str, NDArray[np.uint8]]) -> Column:
    """The column of a leaf from its stored parts."""
    if mode == "none":
        return Column(leaf)
    if mode == "ragged":
        sizes = parts["sizes"].view(np.int64)
        return Ragged(leaf, parts["data"], sizes.reshape(count, len(sizes) // count if count else 1))
    starts = parts["starts"].view(np.int64) if mode == "window" else None
    return Even(leaf, count, parts["data"], starts)


@contextmanager
def one_thread() -> Iterator[None]:
    """Gathers of two threads collapse when another process wants one of their cores."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.argsort(order))


def _overlapping(
    leaf: Leaf, stored: list[int], count: int, data: NDArray[np.uint8], overlap: bool
) -> NDArray[Any]:
    """(places, *stored) over the data; where items overlap there is a place for every row."""
    name = f"u{itemsize(leaf)}" if leaf.kind == "tensor" else leaf.dtype
    dtype = np.dtype(f"V{itemsize(leaf)}") if name == "u16" else np.dtype(name)
    flat = data.view(dtype)
    if not overlap:
        return flat.reshape(count, *stored)
    row = math.prod(stored[1:])
    window = flat[: rows_of(leaf) * row].reshape(stored)
    places = len(flat) // row - rows_of(leaf) + 1
    strides = (row * dtype.itemsize, *window.strides)
    return as_strided(flat, (places, *stored), strides, writeable=False)


def _as_torch(array: NDArray[Any], leaf: Leaf) -> torch.Tensor | None:
    """The same memory as a tensor; None where torch has no such dtype."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is read-only: nobody writes to it
        try:
            if leaf.kind != "tensor":
                return torch.from_numpy(array)
            if array.dtype.kind == "V":  # complex128 has no integer of its size
                return torch.from_numpy(array.view(np.complex128))
            return torch.from_numpy(array).view(getattr(torch, leaf.dtype))
        except (TypeError, ValueError):  # strings, dates, another order of bytes
            return None
