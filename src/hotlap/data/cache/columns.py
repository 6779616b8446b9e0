"""A column of the cache, read: one value, many values, or a whole batch by one gather."""

from __future__ import annotations

import io
import math
import pickle
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from hotlap.data.cache.shape import Leaf, hole_of

Rows = NDArray[np.int64]


class StoredColumn:
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


class Even(StoredColumn):
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


class Ragged(StoredColumn):
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
        return plain_bytes if kind == "bytes" else loads(plain_bytes)


class TensorColumn(StoredColumn):
    """A tensor that the script has in memory already, one row for each item."""

    def __init__(self, leaf: Leaf, tensor: torch.Tensor) -> None:
        super().__init__(leaf)
        self.tensor = tensor

    def value(self, row: int) -> Any:
        return self.tensor[row]

    def gather(self, rows: Rows) -> torch.Tensor:
        with one_thread():
            return self.tensor.index_select(0, torch.from_numpy(rows))


def column(leaf: Leaf, mode: str, count: int, parts: Mapping[str, NDArray[np.uint8]]) -> StoredColumn:
    """The column of a leaf from its stored parts."""
    if mode == "none":
        return StoredColumn(leaf)
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


# From the values of a leaf to the bytes of a column.
#
# Values of one shape lie one after the other (`fixed`). Where the next item is the last one moved on by a few rows,
# as in sliding windows over a recording, only the rows that are new are kept (`window`). Values of varying sizes
# lie one after the other too, with their sizes beside them (`ragged`).


Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]

PLACES_TRIED = (
    4  # rows of the last item that equal the first row of the next: where rows repeat there may be many
)
LARGEST_SHIFT = 0.5  # of a window: with less in common, keeping each whole reads faster


@dataclass(frozen=True)
class ColumnBlock:
    """Some items of one column. `starts` are rows into `data`; `sizes` the shapes of ragged values."""

    data: Bytes
    starts: Counts | None = None
    sizes: Counts | None = None


def mode_of(leaf: Leaf, slides: bool) -> str:
    if leaf.kind in ("none", "hole"):
        return "none"
    if leaf.shape is None:
        return "ragged"
    return "window" if slides else "fixed"


def encode(leaf: Leaf, mode: str, values: Sequence[Any]) -> ColumnBlock:
    """All values of a column for some items in a row."""
    if mode == "none":
        return ColumnBlock(np.empty(0, np.uint8))
    raws = [raw(leaf, value) for value in values]
    if mode == "window":
        rows, starts = _slide([each.reshape(rows_of(leaf), -1) for each in raws])
        return ColumnBlock(rows, starts)
    sizes = np.array([_size(leaf, value) for value in values], np.int64) if mode == "ragged" else None
    return ColumnBlock(np.concatenate(raws) if raws else np.empty(0, np.uint8), None, sizes)


def raw(leaf: Leaf, value: Any) -> Bytes:
    """The bytes of a value, its dimensions from the largest stride to the smallest."""
    if leaf.kind == "tensor":
        plain = value.permute(leaf.order).contiguous().reshape(-1)
        return plain.view(torch.uint8).numpy() if plain.numel() else np.empty(0, np.uint8)
    if leaf.kind in ("array", "scalar"):
        array = np.asarray(value).transpose(leaf.order) if leaf.order else np.asarray(value)
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return np.frombuffer(_plain_bytes(leaf, value), np.uint8)


def rows_of(leaf: Leaf) -> int:
    """The size of the dimension that a window slides along: the outermost."""
    return leaf.shape[leaf.order[0]] if leaf.shape and leaf.order else 1


def slide_share(leaf: Leaf, pairs: Sequence[tuple[Any, Any]]) -> float | None:
    """Of a window, what is new in the next item; None where items are no windows that slide."""
    if leaf.kind not in ("tensor", "array") or not leaf.shape or 0 in leaf.shape or not pairs:
        return None
    rows, shifts = rows_of(leaf), []
    for before, after in pairs:
        shift = _shift(raw(leaf, before).reshape(rows, -1), raw(leaf, after).reshape(rows, -1), None)
        if shift is None or shift > LARGEST_SHIFT * rows:
            return None
        shifts.append(shift)
    return sum(shifts) / len(shifts) / rows if rows > 1 else None


def itemsize(leaf: Leaf) -> int:
    """Bytes of one element of a ragged column."""
    if leaf.kind == "tensor":
        return torch.empty(0, dtype=getattr(torch, leaf.dtype)).element_size()
    if leaf.kind in ("ints", "floats"):
        return 8
    return np.dtype(leaf.dtype).itemsize if leaf.kind == "array" else 1


def _plain_bytes(leaf: Leaf, value: Any) -> bytes:
    if leaf.kind == "str":
        return bytes(value.encode("utf-8", "surrogatepass"))
    if leaf.kind == "bytes":
        return bytes(value)
    if leaf.kind == "object":
        return dumps(value)
    dtype = {"ints": "<i8", "floats": "<f8"}.get(leaf.kind, leaf.dtype)
    return np.array(value, dtype).tobytes()


def _size(leaf: Leaf, value: Any) -> tuple[int, ...]:
    if leaf.kind in ("tensor", "array"):
        return tuple(value.shape)
    if leaf.kind in ("ints", "floats"):
        return (len(value),)
    return (len(_plain_bytes(leaf, value)),)


def _slide(items: Sequence[NDArray[np.uint8]]) -> tuple[Bytes, Counts]:
    kept, starts, total = [items[0]], [0], len(items[0])
    shift: int | None = None
    for before, after in pairwise(items):
        shift = _shift(before, after, shift)
        new = after if shift is None else after[len(after) - shift :]
        kept.append(new)
        total += len(new)
        starts.append(total - len(after))
    return np.concatenate(kept).reshape(-1), np.array(starts, np.int64)


def _shift(before: Bytes, after: Bytes, last: int | None) -> int | None:
    """By how many rows `after` lies further on than `before`; the shift of the last pair is tried first."""
    if last is not None and _moved(before, after, last):
        return last
    first = np.flatnonzero((before == after[0]).all(axis=1))[:PLACES_TRIED]
    return next((int(place) for place in first if place != last and _moved(before, after, int(place))), None)


def _moved(before: Bytes, after: Bytes, shift: int) -> bool:
    return bool(np.array_equal(before[shift:], after[: len(after) - shift]))


# Pickles that are equal for equal objects: torch would write the address of each storage into them.


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and value.layout is torch.strided and value.device.type == "cpu":
            plain = value.detach().contiguous()
            content = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
            return _tensor, (content, str(value.dtype).removeprefix("torch."), tuple(value.shape))
        return NotImplemented


def dumps(value: Any) -> bytes:
    target = io.BytesIO()
    _Pickler(target, protocol=5).dump(value)
    return target.getvalue()


loads = pickle.loads


def _tensor(content: bytes, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    if not content:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.frombuffer(bytearray(content), dtype=getattr(torch, dtype)).reshape(shape)
