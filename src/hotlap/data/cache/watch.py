"""Notices that the script changes its dataset after the items were kept, such as `dataset.epoch = 3`.

Attributes are compared by identity, containers by length and tensors by their count of changes in place: that
takes a microsecond, and is done for each batch. Changes deep inside of an array are not seen.
"""

from __future__ import annotations

from typing import Any

import torch

from hotlap.data.cache.live import transforms_of
from hotlap.data.cache.source import nested

_GONE = object()
_SIZED = (list, dict, set, bytearray)


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
            for name, value, mark in marks:
                if state.get(name, _GONE) is not value or (mark is not None and _mark(value) != mark):
                    return f"'{name}'"
        return ""


def _marks(holder: Any, free: set[tuple[int, str]]) -> list[tuple[str, Any, int | None]]:
    return [
        (name, value, _mark(value)) for name, value in vars(holder).items() if (id(holder), name) not in free
    ]


def _mark(value: Any) -> int | None:
    if isinstance(value, torch.Tensor):
        return value._version
    return len(value) if isinstance(value, _SIZED) else None
