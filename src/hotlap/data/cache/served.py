"""A dataset whose items come from the cache, and which is the script's own in every other way.

It is of a subclass of the dataset's class and has the very same attributes: methods, `isinstance` and changes of
attributes work as before, in both directions. Copies and pickles of it are copies and pickles of the original.
"""

from __future__ import annotations

import copy
import copyreg
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import context
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from hotlap.data.cache import live
from hotlap.data.cache.progress import say
from hotlap.data.cache.store import Store
from hotlap.data.cache.watch import Watch

Rows = NDArray[np.int64]


@dataclass
class Kept:
    """What stands behind a served dataset. `places` gives the row of each index; None where they are the same."""

    original: Any
    store: Store
    places: Rows | None
    watch: Watch
    transforms: live.Places = field(default_factory=dict)
    at_once: bool = False  # a batch is gathered as a whole, by a collate that knows how
    dropped: bool = False

    def current(self) -> bool:
        """Whether the kept items are still those of the dataset."""
        if not self.dropped and (what := self.watch.changed()):
            self.dropped = True
            name = type(self.original).__name__
            say(f"{what} of {name} was changed by the script: its items are no longer served from the cache")
        return not self.dropped

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
        """None where one of them is no number of an item."""
        if not set(map(type, indices)) <= {int}:
            found = [self.row(index) for index in indices]
            return None if None in found or not found else np.array(found, np.int64)
        numbers = np.fromiter(indices, np.int64, len(indices))
        count = self.store.layout.count if self.places is None else len(self.places)
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= count:
            return None
        return numbers if self.places is None else self.places[numbers]

    def item(self, row: int) -> Any:
        kept = self.store.item(row)
        return live.replay(kept, self.transforms) if self.store.layout.live else kept

    def items(self, rows: Rows) -> list[Any]:
        kept = self.store.items(rows)
        return [live.replay(each, self.transforms) for each in kept] if self.store.layout.live else kept


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
        row = kept.row(index) if kept.current() else None
        return kept.original[index] if row is None else kept.item(row)

    def __getitems__(self, indices: Any) -> Any:
        kept = self.hotlap_kept
        rows = kept.rows(indices) if kept.current() else None
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
    transforms = live.transforms_of(original) if lives else {}
    return serve(Kept(original, store, places, Watch(original, lives), transforms, whole))
