"""What an item or a batch holds: how many bytes, and whether two of them are the same bit for bit."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

_MOST_DEPTH = 6


def bytes_of(value: Any) -> int:
    """Bytes of the data in it, without the containers around them."""
    return sum(_leaf_bytes(leaf) for leaf in leaves(value))


def same(one: Any, other: Any) -> bool:
    """Whether both hold the same bits. NaN equals NaN here, and 0.0 is not -0.0."""
    theirs = leaves(other)
    return all(_same_leaf(mine, next(theirs, _NOTHING)) for mine in leaves(one)) and (
        next(theirs, _NOTHING) is _NOTHING
    )


def leaves(value: Any, depth: int = 0) -> Iterator[Any]:
    """Tensors, arrays and whatever else is no container, in a fixed order; the keys of a mapping are leaves too."""
    if depth >= _MOST_DEPTH or isinstance(value, str | bytes | torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from leaves(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner, depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), depth + 1)
    else:
        yield value


_NOTHING = object()


def _leaf_bytes(leaf: Any) -> int:
    size = getattr(leaf, "nbytes", None)  # tensors, NumPy arrays and scalars
    return size if isinstance(size, int) else sys.getsizeof(leaf)


def _same_leaf(mine: Any, theirs: Any) -> bool:
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, torch.Tensor):
        alike = mine.shape == theirs.shape and mine.dtype == theirs.dtype
        return alike and _bits(mine) == _bits(theirs) and mine.__dict__.keys() == theirs.__dict__.keys()
    if hasattr(mine, "tobytes"):  # NumPy, PIL
        about = [(getattr(each, "dtype", None), getattr(each, "shape", None)) for each in (mine, theirs)]
        return bool(about[0] == about[1] and mine.tobytes() == theirs.tobytes())
    if mine is theirs:
        return True
    return pickle.dumps(mine) == pickle.dumps(theirs)


def _bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().flatten()
    return bytes(flat.view(torch.uint8).numpy()) if flat.numel() else b""
