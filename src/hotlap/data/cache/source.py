"""Where items come from: a dataset, and which of its items are wanted."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset, IterableDataset, Subset

from hotlap.data.cache.refusal import CannotCacheError


@dataclass(frozen=True)
class Source:
    """Row r of the cache is `dataset[indices[r]]`; without indices it is `dataset[r]`."""

    dataset: Any
    count: int
    indices: tuple[int, ...] | None = None

    def fetch(self, row: int) -> Any:
        return self.dataset[row if self.indices is None else self.indices[row]]


def source_of(dataset: Any) -> tuple[Source, NDArray[np.int64] | None]:
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
        return Source(dataset, count), None
    rows, places = np.unique(indices, return_inverse=True)
    return Source(inner, len(rows), tuple(rows.tolist())), places.reshape(-1).astype(np.int64)


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
