"""From the values of a leaf to the bytes of a column.

Values of one shape lie one after the other (`fixed`). Where the next item is the last one moved on by a few rows,
as in sliding windows over a recording, only the rows that are new are kept (`window`). Values of varying sizes
lie one after the other too, with their sizes beside them (`ragged`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotlap.data.cache import pickles
from hotlap.data.cache.shape import Leaf

Bytes = NDArray[np.uint8]
Counts = NDArray[np.int64]

PLACES_TRIED = (
    4  # rows of the last item that equal the first row of the next: where rows repeat there may be many
)
LARGEST_SHIFT = 0.5  # of a window: with less in common, keeping each whole reads faster


@dataclass(frozen=True)
class Block:
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


def encode(leaf: Leaf, mode: str, values: Sequence[Any]) -> Block:
    """All values of a column for some items in a row."""
    if mode == "none":
        return Block(np.empty(0, np.uint8))
    raws = [raw(leaf, value) for value in values]
    if mode == "window":
        rows, starts = _slide([each.reshape(rows_of(leaf), -1) for each in raws])
        return Block(rows, starts)
    sizes = np.array([_size(leaf, value) for value in values], np.int64) if mode == "ragged" else None
    return Block(np.concatenate(raws) if raws else np.empty(0, np.uint8), None, sizes)


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
        return pickles.dumps(value)
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
