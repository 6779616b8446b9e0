"""A dataset whose items come from the cache, and which is the script's own in every other way.

It is of a subclass of the dataset's class and has the very same attributes: methods, `isinstance` and changes of
attributes work as before, in both directions. Copies and pickles of it are copies and pickles of the original.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import context
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset, default_collate

from hotlap.data.cache import source
from hotlap.data.cache.columns import Even, StoredColumn, raw
from hotlap.data.cache.messages import CannotCacheError, say
from hotlap.data.cache.proof import digest
from hotlap.data.cache.shape import Leaf, Node, Shape, leaves_of, named_class, shape_of
from hotlap.data.cache.store import Store
from hotlap.data.cache.watch import DatasetDependencies
from hotlap.sameness import random_states
from hotlap.sameness.audit import Audit
from hotlap.sameness.breach import Breach, declare

Rows = NDArray[np.int64]


@dataclass(eq=False)
class Kept:
    """What stands behind a served dataset. `places` gives the row of each index; None where they are the same."""

    original: Any
    store: Store
    places: Rows | None
    watch: DatasetDependencies
    transforms: source.Places = field(default_factory=dict)
    at_once: bool = False  # a batch is gathered as a whole, by a collate that knows how
    dropped: bool = False
    audit: Audit = field(default_factory=Audit)
    audited: bool = False
    kinds: set[type] = field(default_factory=lambda: {int})  # of indices, of which an item was compared

    def current(self, indices: Sequence[Any]) -> bool:
        """Before these items are served: whether the kept ones are still those of the dataset."""
        if self.dropped:
            return False
        if what := self.watch.changed():
            self._drop(f"{what} was changed by the script after items were kept", self.watch.stale)
        elif self.audit.due() and len(indices):
            if not self.audited:  # what only the first one takes says nothing of the next
                self.audited = True
                self._differs(indices[0])
            with self.audit.timed():
                what = self._differs(self.audit.pick(indices))
            if what:
                self._drop(what, self.audit.unaudited)
            else:
                self.audit.agreed()
        return not self.dropped

    def met(self, indices: Sequence[Any]) -> bool:
        """Items were made by plain numbers: `np.int32(3)` or `tensor(3)` may give another one. False where it does."""
        first = {type(index): index for index in indices if type(index) not in self.kinds}
        self.kinds.update(first)
        for index in first.values():
            if what := self._differs(index):
                self._drop(f"asked by a {type(index).__name__}, {what}", 0)
                return False
        return True

    def at_bound(self) -> None:
        """An epoch begins or ends: all that items depend on is compared, where that takes little time."""
        if not self.dropped and (what := self.watch.changed_at_bound()):
            self._drop(f"{what} was changed by the script after items were kept", self.watch.stale)

    def last_look(self) -> None:
        """At the end of the script: no batch stays unchecked."""
        if not self.dropped and self.watch.served and (what := self.watch.changed(at_once=True)):
            self._drop(f"{what} was changed by the script after items were kept", self.watch.stale)

    def _drop(self, what: str, batches: int) -> None:
        """From here on the dataset makes its items itself."""
        self.dropped = True
        if batches:
            declare(Breach("cache-dataset", what, batches))
        else:
            say(f"{what}: items of {type(self.original).__name__} are no longer served from the cache")

    def _differs(self, index: Any) -> str:
        """Fetches one item from the script's own dataset once more. Nothing of the script's may move by that."""
        row = self.row(index)
        if row is None:
            return ""
        fetch = source.Recorder(self.original).fetch if self.store.layout.live else _only_fetch
        with random_states.kept():
            try:
                made = fetch(self.original.__getitem__, index)
            except Exception as fault:
                return f"item {int(index)} cannot be fetched any more ({type(fault).__name__}: {fault})"
        same = digest(made)[0] == digest(self.store.item(row))[0]
        return (
            ""
            if same
            else f"item {int(index)} of {type(self.original).__name__} is not the one that was kept"
        )

    def row(self, index: Any) -> int | None:
        """None for what is no number of an item, which the dataset itself may understand."""
        if isinstance(index, (bool, np.bool_)) or not isinstance(index, (int, np.integer, torch.Tensor)):
            return None
        try:
            number = operator.index(index)
        except TypeError:
            return None
        count = self.store.layout.count if self.places is None else len(self.places)
        if not 0 <= number < count:
            return None
        return number if self.places is None else int(self.places[number])

    def rows(self, indices: Any) -> Rows | None:
        """None where one of them is no number of an item that is kept."""
        if not set(map(type, indices)) <= {int}:
            if not self.met(indices):
                return None
            found = [self.row(index) for index in indices]
            return None if None in found or not found else np.array(found, np.int64)
        numbers = np.fromiter(indices, np.int64, len(indices))
        count = self.store.layout.count if self.places is None else len(self.places)
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= count:
            return None
        return numbers if self.places is None else self.places[numbers]

    def item(self, row: int) -> Any:
        kept = self.store.item(row)
        return source.replay(kept, self.transforms) if self.store.layout.live else kept

    def items(self, rows: Rows) -> list[Any]:
        kept = self.store.items(rows)
        return [source.replay(each, self.transforms) for each in kept] if self.store.layout.live else kept


class Picked(Sequence[Any]):
    """The items of a batch, not made yet: a collate that knows how gathers them instead."""

    def __init__(self, store: Store, rows: Rows) -> None:
        self.store, self.rows = store, rows
        self._items: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        if self._items is None:
            self._items = self.store.items(self.rows)
        return self._items[place]


class Served:
    """Mixed into the class of the dataset."""

    hotlap_kept: ClassVar[Kept]

    def __getitem__(self, index: Any) -> Any:
        kept = self.hotlap_kept
        serves = kept.current((index,)) and (type(index) is int or kept.met((index,)))
        row = kept.row(index) if serves else None
        return kept.original[index] if row is None else kept.item(row)

    def __getitems__(self, indices: Any) -> Any:
        kept = self.hotlap_kept
        rows = kept.rows(indices) if kept.current(indices) else None
        if rows is not None:
            return Picked(kept.store, rows) if kept.at_once else kept.items(rows)
        at_once = getattr(kept.original, "__getitems__", None)
        return at_once(indices) if callable(at_once) else [kept.original[index] for index in indices]

    def __copy__(self) -> Any:
        return copy.copy(self.hotlap_kept.original)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(self.hotlap_kept.original, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        kept = self.hotlap_kept
        if context.get_spawning_popen() is None:  # the script keeps it: nothing of hotlap belongs there
            return _reduced(kept.original, protocol)
        return _serve_again, (kept.original, kept.store, kept.places, kept.at_once)


class _Forwards(Dataset[Any]):
    """For a dataset whose class cannot be extended."""

    hotlap_kept: ClassVar[Kept]

    def __len__(self) -> int:
        return len(self.hotlap_kept.original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hotlap_kept.original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.hotlap_kept.original, name, value)


def serve(kept: Kept) -> Any:
    """The dataset to give to a loader in place of the original."""
    kind = type(kept.original)
    about = {"hotlap_kept": kept, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    about["__doc__"] = kind.__doc__
    if _extensible(kind):
        try:
            served: Any = object.__new__(type(kind.__name__, (Served, kind), about))
            served.__dict__ = kept.original.__dict__
            return served
        except (TypeError, AttributeError):  # of a C library, or with a metaclass of its own
            pass
    return object.__new__(type(kind.__name__, (Served, _Forwards), about))


def at_once(served: Any) -> Any:
    """The same dataset, its batches as a whole."""
    return serve(replace(served.hotlap_kept, at_once=True))


def kept_of(dataset: Any) -> Kept | None:
    return dataset.hotlap_kept if isinstance(dataset, Served) else None


def watched_in_part(dataset: Any) -> bool:
    """Whether it serves items of which not all is known that they depend on: the audit alone watches over the rest."""
    kept = kept_of(dataset)
    return kept is not None and bool(kept.watch.unknown)


def _only_fetch(fetch: Callable[[Any], Any], index: Any) -> Any:
    return fetch(index)


def _extensible(kind: type) -> bool:
    """A class that acts when it is extended, as registries do, is left alone."""
    own = getattr(kind.__init_subclass__, "__func__", None)
    return own is None or own is getattr(Dataset.__init_subclass__, "__func__", None)


def _reduced(original: Any, protocol: Any) -> Any:
    """What pickle makes of the original. It would refuse `__newobj__` here, as the class is another."""
    how, args, *rest = original.__reduce_ex__(protocol)
    if how is copyreg.__newobj__ and len(args) == 1:  # type: ignore[attr-defined]
        return copyreg._reconstructor, (args[0], object, None), *rest  # type: ignore[attr-defined]
    return (how, args, *rest) if how is not copyreg.__newobj__ else (_itself, (original,))  # type: ignore[attr-defined]


def _itself(original: Any) -> Any:
    return original


def _serve_again(original: Any, store: Store, places: Rows | None, whole: bool) -> Any:
    lives = store.layout.live
    transforms = source.transforms_of(original) if lives else {}
    return serve(Kept(original, store, places, DatasetDependencies(original, lives), transforms, whole))


# Whole batches by one gather for each tensor, equal to what torch's own collate makes of the items.


TRIED = (1, 2, 7)  # sizes of the batches that are compared

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


def _leaf(leaf: Leaf, column: StoredColumn, strings: Callable[[list[Any]], Any]) -> Gather:
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
