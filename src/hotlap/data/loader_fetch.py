"""Fetches one batch: its items by their keys, the damaged ones left out where that was asked for, then collated."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher

LONG_NS = 2_000_000
NOTHING = "hotlap: every item of the batch was damaged"  # compared by value: it travels between processes


@dataclass(frozen=True)
class Source:
    """What a loader reads and how it makes batches of it: all that a worker needs to know of it."""

    dataset: Any
    iterable: bool
    batched: bool  # False: batch_size=None, items are handed on one by one
    collate: Callable[[Any], Any]
    drop_last: bool
    skip_bad: bool = False


@dataclass(frozen=True)
class Bad:
    """An item that could not be fetched."""

    key: Any
    error: str


@dataclass
class Fetched:
    """A batch with what it took. `data` is NOTHING where every item was bad. `cpu_ns`: that it needed a core."""

    data: Any
    bad: list[Bad] = field(default_factory=list)
    wall_ns: int = 0
    cpu_ns: int = 0
    size: int = 0


Fetch = Callable[[Any], Fetched]


def fetch_of(source: Source) -> Fetch:
    """The quickest way to fetch a batch of this source; raises StopIteration at the end of a stream."""
    if source.iterable:
        stream = _IterableDatasetFetcher(source.dataset, source.batched, source.collate, source.drop_last)
        return _timed(lambda keys: Fetched(stream.fetch(keys)))  # type: ignore[no-untyped-call]
    if not source.batched:
        return _timed(lambda key: _one(source, key))
    if _is_gatherable(source):
        return _timed(lambda keys: Fetched(_gathered(source.dataset.tensors, keys)))
    return _timed(lambda keys: _items(source, keys))


def _timed(fetch: Fetch) -> Fetch:
    long = False  # only then it pays to ask the system how long the thread was ready but had no core

    def timed(keys: Any) -> Fetched:
        nonlocal long
        queued = _queued_ns() if long else 0
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        fetched = fetch(keys)
        fetched.cpu_ns = time.thread_time_ns() - cpu
        fetched.wall_ns = time.perf_counter_ns() - wall
        if long:
            fetched.cpu_ns += _queued_ns() - queued
        long = fetched.wall_ns > LONG_NS
        return fetched

    return timed


def _queued_ns() -> int:
    """Items of a busy machine that wait for a core do need the CPU."""
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:  # noqa: PTH123 (quick)
            return int(file.read().split()[1])
    except (OSError, IndexError, ValueError):
        return 0


def _items(source: Source, keys: Sequence[Any]) -> Fetched:
    if source.skip_bad:
        return _good_items(source, keys)
    dataset = source.dataset
    together = getattr(dataset, "__getitems__", None)
    return Fetched(source.collate(together(keys) if together else [dataset[key] for key in keys]))


def _good_items(source: Source, keys: Sequence[Any]) -> Fetched:
    """One by one: `__getitems__` would not say which of them is damaged."""
    good, bad = [], []
    for key in keys:
        try:
            good.append(source.dataset[key])
        except Exception:
            bad.append(Bad(key, traceback.format_exc()))
    return Fetched(source.collate(good) if good else NOTHING, bad)


def _one(source: Source, key: Any) -> Fetched:
    try:
        return Fetched(source.collate(source.dataset[key]))
    except Exception:
        if not source.skip_bad:
            raise
        return Fetched(NOTHING, [Bad(key, traceback.format_exc())])


def _is_gatherable(source: Source) -> bool:
    """A TensorDataset with torch's collate: stacking rows is the same as one gather of each tensor."""
    return (
        type(source.dataset) is TensorDataset
        and source.collate is default_collate
        and not source.skip_bad
        and all(
            type(each) is torch.Tensor and each.is_contiguous() and not each.requires_grad
            for each in source.dataset.tensors
        )
    )


def _gathered(tensors: Sequence[torch.Tensor], keys: Sequence[Any]) -> list[torch.Tensor]:
    if all(type(key) is int for key in keys):
        rows = torch.tensor(keys)
        return [tensor[rows] for tensor in tensors]
    collated: list[torch.Tensor] = default_collate([tuple(tensor[key] for tensor in tensors) for key in keys])
    return collated


def bytes_of(data: Any) -> int:
    """Of the tensors and arrays in a batch, as far as they are in plain containers."""
    if isinstance(data, torch.Tensor):
        return data.numel() * data.element_size()
    if isinstance(data, dict):
        return sum(map(bytes_of, data.values()))
    if isinstance(data, list | tuple):
        return sum(map(bytes_of, data))
    return int(getattr(data, "nbytes", 0))


def alike(one: Any, two: Any) -> bool:
    """Bit-equal, as far as plain containers, tensors and arrays go; else as `==` says."""
    if type(one) is not type(two):
        return False
    if isinstance(one, torch.Tensor):
        return one.dtype == two.dtype and one.shape == two.shape and _bits(one) == _bits(two)
    if isinstance(one, np.ndarray):
        return bool(one.dtype == two.dtype and one.shape == two.shape and one.tobytes() == two.tobytes())
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(alike(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(alike, one, two))
    try:
        return bool(one == two) or bool(one != one and two != two)
    except Exception:
        return False


def _bits(tensor: torch.Tensor) -> bytes:
    return (
        tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        if tensor.numel()
        else b""
    )
