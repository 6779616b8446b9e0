"""Whole batches by one gather for each tensor, equal to what torch's own collate makes of the items."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import default_collate

from hotlap.data.cache.columns import Column, Even
from hotlap.data.cache.encode import raw
from hotlap.data.cache.refusal import CannotCacheError
from hotlap.data.cache.served import Picked
from hotlap.data.cache.shape import Leaf, Node, Shape, leaves_of, named_class, shape_of
from hotlap.data.cache.store import Store

TRIED = (1, 2, 7)  # sizes of the batches that are compared

Rows = NDArray[np.int64]
Gather = Callable[[Rows], Any]


class WholeBatch:
    """A collate function: batches of cached items are gathered, all others go to torch's own."""

    def __init__(self, collate: Callable[[Any], Any], store: Store) -> None:
        functools.update_wrapper(self, collate)
        self._collate = collate
        self._store = store
        self._gather: Gather | None = None

    def __call__(self, items: Any) -> Any:
        if type(items) is not Picked:
            return self._collate(items)
        if self._gather is None:
            self._gather = gather_of(self._store)
        return self._gather(items.rows)

    def __reduce__(self) -> Any:
        return WholeBatch, (self._collate, self._store)


def require_gather(store: Store) -> None:
    """Raises CannotCacheError where a gathered batch is not what torch's collate makes of the same items."""
    if store.layout.live:
        raise CannotCacheError("its transforms are random and stay live, so that items are made one by one")
    gather, count = gather_of(store), store.layout.count
    for size in TRIED:
        rows = np.linspace(count - 1, 0, size).astype(np.int64)
        try:
            expected = default_collate(store.items(rows))
        except (RuntimeError, TypeError) as fault:
            raise CannotCacheError(f"torch's collate fails on its items ({fault})") from fault
        if not identical(gather(rows), expected):
            raise CannotCacheError("a gathered batch is not what torch's collate makes of the same items")


def gather_of(store: Store) -> Gather:
    """A function from rows to a batch."""
    columns = iter(store.columns)
    return _gather(store.layout.shape, columns, list)


def _gather(shape: Shape, columns: Any, strings: Callable[[list[Any]], Any]) -> Gather:
    """torch gives strings back as the sequence that it had them in: `strings` makes it."""
    if isinstance(shape, Leaf):
        return _leaf(shape, next(columns), strings)
    inner = list if shape.kind == "dict" else tuple
    parts = [_gather(part, columns, inner) for part in shape.parts]
    if shape.kind == "dict":
        pairs = list(zip(shape.keys, parts, strict=True))
        return lambda rows: {key: part(rows) for key, part in pairs}
    if shape.kind == "named":
        cls = named_class(shape)
        return lambda rows: cls(*[part(rows) for part in parts])
    return lambda rows: [part(rows) for part in parts]


def _leaf(leaf: Leaf, column: Column, strings: Callable[[list[Any]], Any]) -> Gather:
    if leaf.kind in ("str", "bytes"):
        return lambda rows: strings(column.values(rows))
    if isinstance(column, Even) and column.turns and column.tensor is not None:
        return column.turned_batch
    if getattr(column, "tensor", None) is not None:
        return column.gather
    if leaf.kind in ("tensor", "array") and leaf.shape is None:
        raise CannotCacheError("items differ in size, so that torch's collate has no batch for them")
    raise CannotCacheError(f"values of kind {leaf.kind} {leaf.dtype} cannot be gathered".replace("  ", " "))


def identical(one: Any, two: Any) -> bool:
    """Equal in types, dtypes, shapes, strides and bits."""
    try:
        shape, other = shape_of(one), shape_of(two)
    except CannotCacheError:
        return False
    if type(one) is not type(two) or shape != other:
        return False
    return _same(one, two, shape)


def _same(one: Any, two: Any, shape: Shape) -> bool:
    if isinstance(shape, Node):
        keys = shape.keys if shape.kind != "named" else range(len(shape.parts))
        parts = zip(keys, shape.parts, strict=True)
        return all(_same(one[key], two[key], part) for key, part in parts)
    if isinstance(one, torch.Tensor) and one.stride() != two.stride():
        return False
    return leaves_of(shape)[0].kind == "none" or bool(np.array_equal(raw(shape, one), raw(shape, two)))
