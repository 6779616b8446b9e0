"""Where items come from: a dataset, and which of its items are wanted."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, Subset

from hotlap.data.cache.messages import CannotCacheError
from hotlap.data.cache.shape import Hole


@dataclass(frozen=True)
class CacheSource:
    """Row r of the cache is `dataset[indices[r]]`; without indices it is `dataset[r]`."""

    dataset: Any
    count: int
    indices: tuple[int, ...] | None = None

    def fetch(self, row: int) -> Any:
        return self.dataset[row if self.indices is None else self.indices[row]]


def source_of(dataset: Any) -> tuple[CacheSource, NDArray[np.int64] | None]:
    """The items behind a dataset, and for each of its own indices the row; None where they are the same.

    A Subset is looked through: its items are kept in the order of the dataset below, each once, so that a
    random split of sliding windows is still made of windows that overlap.
    """
    if isinstance(dataset, IterableDataset) or not callable(getattr(dataset, "__getitem__", None)):
        raise CannotCacheError("the dataset is a stream: it has no items that could be asked for by number")
    count = _length(dataset)
    inner, indices = dataset, None
    while type(inner) is Subset and (picked := _whole_numbers(inner.indices)) is not None:
        indices = picked if indices is None else picked[indices]
        inner = inner.dataset
    if indices is None:
        return CacheSource(dataset, count), None
    rows, places = np.unique(indices, return_inverse=True)
    return CacheSource(inner, len(rows), tuple(rows.tolist())), places.reshape(-1).astype(np.int64)


def inside(dataset: Any) -> Any:
    """The dataset that a part of a part is of."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return dataset


def nested(dataset: Any, path: str = "", depth: int = 5) -> list[tuple[str, Any]]:
    """The dataset and those that it is made of, each with its path of attributes."""
    found = [(path, dataset)]
    if depth == 0:
        return found
    for name, value in _attributes(dataset).items():
        if isinstance(value, Dataset):
            found += nested(value, f"{path}.{name}", depth - 1)
        elif isinstance(value, (list, tuple)) and value and all(isinstance(each, Dataset) for each in value):
            for number, each in enumerate(value):
                found += nested(each, f"{path}.{name}.{number}", depth - 1)
    return found


def _attributes(dataset: Any) -> dict[str, Any]:
    return vars(dataset) if hasattr(dataset, "__dict__") else {}


def _length(dataset: Any) -> int:
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        raise CannotCacheError("the dataset has no length") from None
    if count == 0:
        raise CannotCacheError("the dataset is empty")
    return count


def _whole_numbers(indices: Sequence[Any]) -> NDArray[np.int64] | None:
    try:
        numbers = np.array([operator.index(each) for each in indices], np.int64)
    except TypeError:
        return None
    return numbers if len(numbers) and numbers.min() >= 0 else None


# Transforms that are random stay live: only what they are given is kept.
#
# In another process each transform is replaced by a recorder that returns a hole. Where the item then comes out
# with the hole in it, the transform is the last that touches that part, and the item can be made again from what
# the transform was given. Where the dataset does anything else with the result, it fails on the hole.


NAMES = ("transform", "augment")  # an attribute with one of these in its name is taken for a transform

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Places = dict[str, tuple[Any, str]]


def transforms_of(dataset: Any) -> Places:
    """Path of each transform, to the dataset that holds it and the name of the attribute."""
    return {
        f"{path}.{name}".lstrip("."): (holder, name)
        for path, holder in nested(dataset)
        for name, value in (vars(holder) if hasattr(holder, "__dict__") else {}).items()
        if callable(value) and any(word in name.lower() for word in NAMES)
    }


def holders_of(dataset: Any) -> set[tuple[int, str]]:
    """Id of the holder and name of each transform: what is called anew for each item."""
    return {(id(holder), name) for holder, name in transforms_of(dataset).values()}


class Recorder:
    """Notes what transforms are given, in the order in which they are called."""

    def __init__(self, dataset: Any) -> None:
        self._calls: list[Call] = []
        self._saved = {path: getattr(*place) for path, place in transforms_of(dataset).items()}
        self._places = transforms_of(dataset)

    def fetch(self, fetch: Callable[[Any], Any], row: Any) -> tuple[Any, tuple[Call, ...]]:
        """The item with holes, and the calls that fill them."""
        self._calls = []
        for path, (holder, name) in self._places.items():
            setattr(holder, name, self._stub(path))
        try:
            return fetch(row), tuple(self._calls)
        finally:
            for path, (holder, name) in self._places.items():
                setattr(holder, name, self._saved[path])

    def _stub(self, path: str) -> Callable[..., Hole]:
        def record(*args: Any, **kwargs: Any) -> Hole:
            self._calls.append((path, args, kwargs))
            return Hole(len(self._calls) - 1, len(args))

        return record


def replay(kept: tuple[Any, tuple[Call, ...]], places: Mapping[str, tuple[Any, str]]) -> Any:
    """The item, its transforms called now."""
    item, calls = kept
    results: list[Any] = []
    for path, args, kwargs in calls:
        results.append(getattr(*places[path])(*fill(args, results), **fill(kwargs, results)))
    return fill(item, results)


def fill(value: Any, results: list[Any]) -> Any:
    """The value with each hole replaced by the result of its call."""
    kind = type(value)
    if kind is Hole:
        return results[value.call] if value.part is None else results[value.call][value.part]
    if kind is dict:
        return {key: fill(each, results) for key, each in value.items()}
    if kind is list:
        return [fill(each, results) for each in value]
    if kind is tuple:
        return tuple(fill(each, results) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(fill(each, results) for each in value))
    return value
