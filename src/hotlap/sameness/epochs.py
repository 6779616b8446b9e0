"""Datasets that are told the epoch, and what they would give in another one.

An item that is the same twice within one epoch may be another in the next: where the dataset has `set_epoch`, or keeps
the number in an attribute and draws by it. A copy is told of a later epoch. Nothing of the script's own dataset is
changed, also not the number that it shares with its workers.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from multiprocessing.managers import BaseProxy
from multiprocessing.sharedctypes import Synchronized, Value
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

_NUMBER = re.compile(r"_*((current|cur)_?)?epoch(_?(idx|index|num|number))?_*", re.IGNORECASE)
_MOST_COPIED = 64 << 20  # bytes of one array: what is larger holds the data, not the epoch
_MOST_DEPTH = 5
CELLS = (Synchronized, ctypes._SimpleCData)  # numbers that processes share: Value, with a lock or without
_UNKNOWN = (1, 2)  # epochs to try where the present one is not known: at least one of them is another


class NoOtherEpochError(Exception):
    """The dataset knows of epochs, but no copy of it could be told of another one; says why."""


def in_other_epochs(dataset: Any) -> list[Any]:
    """Copies of the dataset in later epochs; none where it knows of no epoch."""
    holders = list(_holders(dataset))
    if not any(_hears(each) or _numbers(each) for each in holders):
        return []
    present = [number for each in holders for number in _numbers(each).values()]
    later = (max(present) + 1,) if present else _UNKNOWN
    try:
        return [_told(dataset, epoch) for epoch in later]
    except NoOtherEpochError:
        raise
    except Exception as fault:
        raise NoOtherEpochError(f"{type(fault).__name__}: {fault}") from fault


def _told(dataset: Any, epoch: int) -> Any:
    copy = _copied_object(dataset, {})
    for holder in _holders(copy):
        if _hears(holder):
            holder.set_epoch(epoch)
        else:
            for name in _numbers(holder):
                _write(holder, name, epoch)
    return copy


def _holders(value: Any, depth: int = _MOST_DEPTH) -> Iterator[Any]:
    """The dataset, those that it is made of, and what else of it can be told the epoch."""
    yield value
    if depth == 0 or not hasattr(value, "__dict__"):
        return
    for each in list(vars(value).values()):
        inside = each if type(each) in (list, tuple) else (each,)
        for part in inside if inside and _is_holder(inside[0]) else ():
            if _is_holder(part):
                yield from _holders(part, depth - 1)


def _is_holder(value: Any) -> bool:
    return isinstance(value, Dataset) or (_hears(value) and hasattr(value, "__dict__"))


def _hears(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(type(value), "set_epoch", None))


def _numbers(holder: Any) -> dict[str, int]:
    """Attributes that hold the number of an epoch."""
    state = vars(holder) if hasattr(holder, "__dict__") else {}
    named = {name: _number(value) for name, value in state.items() if _NUMBER.fullmatch(name)}
    return {name: number for name, number in named.items() if number is not None}


def _number(value: Any) -> int | None:
    if isinstance(value, torch.Tensor | np.ndarray):
        whole = value.size == 1 if isinstance(value, np.ndarray) else value.numel() == 1
        return int(value) if whole else None
    plain = value.value if isinstance(value, CELLS) else value
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


def _write(holder: Any, name: str, epoch: int) -> None:
    value = vars(holder)[name]
    if isinstance(value, torch.Tensor):
        value.fill_(epoch)
    elif isinstance(value, np.ndarray):
        value[...] = epoch
    elif isinstance(value, CELLS):
        value.value = epoch
    else:
        setattr(holder, name, epoch)


def _copied_object(value: Any, met: dict[int, Any]) -> Any:
    """With attributes of its own, as far as somebody who is told the epoch may change them in place."""
    if id(value) in met:
        return met[id(value)]
    if not hasattr(value, "__dict__"):
        raise NoOtherEpochError(f"a {type(value).__name__} cannot be copied")
    copy = met[id(value)] = object.__new__(type(value))
    copy.__dict__.update({name: _copied(each, met) for name, each in vars(value).items()})
    return copy


def _copied(value: Any, met: dict[int, Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return value.clone() if value.nbytes <= _MOST_COPIED else value
    if type(value) is np.ndarray:
        return value.copy() if value.nbytes <= _MOST_COPIED else value
    if isinstance(value, Synchronized):
        return Value(type(value.get_obj()), value.value)
    if isinstance(value, ctypes._SimpleCData):
        return type(value)(value.value)
    if isinstance(value, BaseProxy):
        raise NoOtherEpochError("it holds an object of another process")
    if isinstance(value, MethodType) and _is_holder(value.__self__):
        return MethodType(value.__func__, _copied_object(value.__self__, met))
    if type(value) in (list, tuple):
        holds = bool(value) and _is_holder(value[0])
        return type(value)(_copied(each, met) for each in value) if holds else type(value)(value)
    if type(value) in (dict, set, bytearray):
        return type(value)(value)
    return _copied_object(value, met) if _is_holder(value) else value
