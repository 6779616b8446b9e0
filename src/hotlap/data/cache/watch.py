"""Notices that the script changes its dataset after the items were kept, such as `dataset.epoch = 3`.

Attributes are compared by identity, containers by length, tensors by their count of changes in place, and a few
numbers that processes share (an epoch that workers which live on are told of) by content: that takes microseconds, and
is done for each batch. Changes deep inside of an array are not seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hotlap.data.cache.live import transforms_of
from hotlap.data.cache.source import nested
from hotlap.epochs import CELLS

_GONE = object()
_SIZED = (list, dict, set, bytearray)
_FEW = 16  # numbers that are compared one by one

Read = Callable[[Any], Any]


class Watch:
    """The attributes of a dataset, and of those that it is made of, as they are now."""

    def __init__(self, dataset: Any, lives: bool) -> None:
        places = transforms_of(dataset).values() if lives else ()
        free = {(id(holder), name) for holder, name in places}  # asked for at each call
        self._held = [
            (vars(holder), len(vars(holder)), _marks(holder, free))
            for _, holder in nested(dataset)
            if hasattr(holder, "__dict__")
        ]

    def changed(self) -> str:
        """The name of an attribute that is not what it was; nothing where all are."""
        for state, count, marks in self._held:
            if len(state) != count:
                return "an attribute"
            for name, value, read, mark in marks:
                if state.get(name, _GONE) is not value or (read is not None and read(value) != mark):
                    return f"'{name}'"
        return ""


def _marks(holder: Any, free: set[tuple[int, str]]) -> list[tuple[str, Any, Read | None, Any]]:
    watched = [(name, value) for name, value in vars(holder).items() if (id(holder), name) not in free]
    readers = [_reader(value) for _, value in watched]
    return [
        (name, value, read, read(value) if read is not None else None)
        for (name, value), read in zip(watched, readers, strict=True)
    ]


def _reader(value: Any) -> Read | None:
    """What tells that something was changed in place."""
    if isinstance(value, torch.Tensor):
        shared = value.numel() <= _FEW and value.is_shared()  # type: ignore[no-untyped-call]
        return torch.Tensor.tolist if shared else _version  # others do not raise the version of ours
    if isinstance(value, np.ndarray) and value.size <= _FEW:
        return np.ndarray.tobytes
    if isinstance(value, CELLS):
        return _shared_value
    return len if isinstance(value, _SIZED) else None


def _version(tensor: torch.Tensor) -> int:
    return tensor._version


def _shared_value(holder: Any) -> Any:
    return holder.value
