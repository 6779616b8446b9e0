"""Notices that a script has written to its dataset: `dataset.set_epoch(3)` does not reach workers that persist.

A shallow picture of the object: numbers and text by value, tensors by identity and version, long lists by identity and
length. What cannot be seen this way (a number inside of a large array) is not noticed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import torch

_MOST = 2000  # parts that are looked at
_DEPTH = 4
_SHORT = 64  # of a list or a dict: longer ones hold samples
_SMALL = 1 << 16  # bytes of an array that are compared


def traces(dataset: Any) -> dict[str, Any]:
    """Names of attributes with something that changes when they do."""
    found: dict[str, Any] = {}
    for name, value in _walk("", dataset, 0):
        found[name] = value
        if len(found) >= _MOST:
            break
    return found


def _walk(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, int | float | complex | str | bytes | type(None)):
        yield name, value
    elif isinstance(value, torch.Tensor):
        if not value.is_shared():  # type: ignore[no-untyped-call]  # what is shared reaches the workers
            yield name, (id(value), value._version, tuple(value.shape))
    elif hasattr(value, "__array_interface__") and hasattr(value, "nbytes"):
        small = value.nbytes <= _SMALL and value.dtype.kind != "O"
        yield name, (id(value), value.shape, zlib.crc32(value.tobytes()) if small else None)
    elif isinstance(value, list | tuple | dict | set | frozenset):
        yield name, (id(value) if isinstance(value, list | dict | set) else None, len(value))
        if len(value) <= _SHORT and depth < _DEPTH and not isinstance(value, set | frozenset):
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            for key, inner in pairs:
                yield from _walk(f"{name}[{key!r}]", inner, depth + 1)
    else:
        yield name, id(value)
        if depth < _DEPTH:
            for key, inner in getattr(value, "__dict__", {}).items():
                yield from _walk(f"{name}.{key}" if name else key, inner, depth + 1)
