"""Looks at the items, the collate function and the sampler of a loader, aside, to know what workers would change.

Without workers a batch is made in the training process at the moment when the loop wants it; with them it is made
earlier and elsewhere. That makes no difference where nothing of it draws random numbers, changes anything or gives the
dataset's own memory away. As many batches as fit into a second are made, each twice under different random states.
"""

from __future__ import annotations

import enum
import os
import pickle
import random
import select
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler, default_collate, default_convert
from torch.utils.data._utils import worker

from hotlap.probe import boundary
from hotlap.probe.lengths import length_of
from hotlap.sameness import random_states
from hotlap.sameness.claim import chain_of, is_torchs, of_sampler
from hotlap.sameness.content import leaves, same
from hotlap.sameness.dependencies import Dependencies

ENOUGH_S = 1.0  # after which no further batch is made
_SAMPLER_S = 0.3
_MOST_DRAWN = 100_000  # of a sampler's output
_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), torch.dtype, torch.device)
_FOUND_BY_NAME = (tuple, type, enum.Enum, torch.Size, np.dtype, types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class WorkerEffects:
    """What would come out differently with workers: `items` (collate included), `sampler`; empty where nothing was seen
    to. `unproved`: why that is not certain. `volatile`: what fetching an item changes the first time. `twice`: a batch
    holds the same memory twice, so that a loop which writes to one part writes to another."""

    items: str = ""
    sampler: str = ""
    unproved: str = ""
    volatile: tuple[str, ...] = ()
    twice: bool = False

    @property
    def same(self) -> bool:
        """Whether nothing was seen to come out differently."""
        return not (self.items or self.sampler)


NOTHING_KNOWN = WorkerEffects("could not be looked at", "could not be looked at", "could not be looked at")


class BatchAssembly:
    """What a loader with these arguments asks for, and how it makes a batch of it."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.dataset, self.init = arguments["dataset"], arguments.get("worker_init_fn")
        self.generator = arguments.get("generator")
        size, batches = arguments.get("batch_size"), arguments.get("batch_sampler")
        self.batched = size is not None or batches is not None
        self.collate = arguments.get("collate_fn") or (default_collate if self.batched else default_convert)
        sampler = arguments.get("sampler")
        if sampler is None:
            shuffled = arguments.get("shuffle")
            sampler = (
                RandomSampler(self.dataset, generator=self.generator)
                if shuffled
                else SequentialSampler(self.dataset)
            )
        if batches is None and size is not None:
            batches = BatchSampler(sampler, size, bool(arguments.get("drop_last")))
        self.sampler = sampler if batches is None else batches
        self.has_workers = bool(arguments.get("num_workers"))

    def make(self, keys: Any) -> Any:
        if not self.batched:
            return self.collate(self.dataset[keys])
        at_once = getattr(self.dataset, "__getitems__", None)
        return self.collate(at_once(keys) if callable(at_once) else [self.dataset[key] for key in keys])


def look(arguments: dict[str, Any]) -> WorkerEffects:
    """To be called in a process of its own: it fetches, iterates and draws."""
    order = BatchAssembly(arguments)
    sampler, keys, all_drawn, at_end = _sampled(order)
    items, all_made, filled, unknown, twice = _made(order, keys)
    if items or sampler:
        return WorkerEffects(items, sampler)
    doubts = [
        "" if all_drawn and all_made else "not all items were looked at",
        f"fetching an item changes {filled[0]}" if filled else "",
        at_end if order.has_workers else "",  # without, its end is put off, see loader_iterator.Lean
        ""
        if is_torchs(order.sampler)
        else f"its sampler, a {_sampler_of(order.sampler)}, is not torch's own",
        "" if order.init is None else "it has a worker_init_fn",
        unknown[0] if unknown else "",
    ]
    return WorkerEffects(unproved=next(filter(None, doubts), ""), volatile=filled, twice=twice)


def _sampler_of(sampler: Any) -> str:
    own = [each for each in chain_of(sampler) if not type(each).__module__.startswith("torch.utils.data")]
    return type(own[0]).__name__


def _sampled(order: BatchAssembly) -> tuple[str, list[Any], bool, str]:
    """What a sampler does after its first output, which workers would have it do earlier; what it gave, whether that is
    all, and what it does at its end."""
    random_states.seed(1)
    output = iter(order.sampler)
    keys = list(islice(output, 1))
    before, state = random_states.states(), of_sampler(order.sampler, order.dataset)
    given = order.generator.get_state() if order.generator is not None else None
    keys += _within(islice(output, max(0, min(_length(order.sampler), _MOST_DRAWN) - 1)), _SAMPLER_S)
    if drawn := random_states.moved(before):
        return f"its sampler draws random numbers of {drawn} while it is iterated", keys, False, ""
    if order.generator is not None and not same(given, order.generator.get_state()):
        return "its sampler draws from the loader's generator while it is iterated", keys, False, ""
    if changed := state.all_changed():
        return f"iterating its sampler changes {changed[0]}", keys, False, ""
    complete = len(keys) >= _length(order.sampler)
    complete = next(output, _END) is _END or complete
    acts = random_states.moved(before) or state.all_changed()
    return "", keys, complete, "its sampler draws or changes something at its end" if acts else ""


_END = object()


def _within(values: Iterator[Any], seconds: float) -> list[Any]:
    until, found = time.monotonic() + seconds, []
    for each in values:
        found.append(each)
        if time.monotonic() > until:
            break
    return found


def _length(sampler: Any) -> int:
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return _MOST_DRAWN


def _made(order: BatchAssembly, keys: list[Any]) -> tuple[str, bool, tuple[str, ...], tuple[str, ...], bool]:
    """What making batches twice shows; whether all were made; what fetching changes only the first time (a file that it
    opens, a memo); what could not be walked; and whether one batch holds the same memory twice."""
    keys = list(keys)
    random.Random(1).shuffle(keys)  # spread over the dataset, also where the sampler goes through it in order
    state = Dependencies(order.dataset, order.collate)
    until, made = time.monotonic() + ENOUGH_S, 0
    for each in keys:
        if differs := _twice(order, each):
            return differs, False, (), (), False
        made += 1
        if time.monotonic() > until:
            break
    filled = state.all_changed()
    if filled:
        settled = Dependencies(order.dataset, order.collate)
        for each in keys[:made]:
            order.make(each)
        if again := settled.all_changed():
            return f"fetching an item changes {again[0]}", False, (), (), False
    return "", made == len(keys), filled, state.unknown, bool(keys) and _holds_twice(order.make(keys[0]))


def _twice(order: BatchAssembly, keys: Any) -> str:
    first, drew = _once(order, keys, 1)
    if drew:
        return f"its items or its collate function draw random numbers of {drew}"
    worker._worker_info = worker.WorkerInfo(id=1, num_workers=2, seed=2, dataset=order.dataset)
    try:
        second, _ = _once(order, keys, 2)
    finally:
        worker._worker_info = None
    if not same(first, second):
        return "an item comes out differently the second time"
    if _aliased(first, second):
        return (
            "its batches are memory or objects of the script's own, which the loop may write to or know again"
        )
    if any(isinstance(each, torch.Tensor) and each.__dict__ for each in _parts(first)):
        return "its batches hold tensors with attributes, which are lost between processes"
    return ""


def _once(order: BatchAssembly, keys: Any, seed: int) -> tuple[Any, str]:
    random_states.seed(seed)
    before = random_states.states()
    batch = order.make(keys)
    return batch, random_states.moved(before)


def _aliased(first: Any, second: Any) -> bool:
    """Whether two batches of the same items share something that can be written to."""
    if not isinstance(first, _IMMUTABLE) and first is second:
        return True
    for one, two in zip(_parts(first), _parts(second), strict=False):
        if isinstance(one, torch.Tensor) and isinstance(two, torch.Tensor):
            if one.numel() and one.data_ptr() == two.data_ptr():
                return True
        elif hasattr(one, "__array_interface__"):
            if one.size and one.__array_interface__["data"][0] == two.__array_interface__["data"][0]:
                return True
        elif one is two and not isinstance(one, (*_IMMUTABLE, *_FOUND_BY_NAME)):
            return True
    return False


def _holds_twice(batch: Any) -> bool:
    held = [
        each.untyped_storage().data_ptr()
        for each in {id(part): part for part in _parts(batch)}.values()
        if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.numel()
    ]
    return len(set(held)) < len(held)


def _parts(value: Any, depth: int = 6) -> Iterator[Any]:
    """Containers and leaves, in a fixed order."""
    yield value
    if depth and isinstance(value, dict):
        for each in value.values():
            yield from _parts(each, depth - 1)
    elif depth and isinstance(value, list | tuple):
        for each in value:
            yield from _parts(each, depth - 1)
    elif not isinstance(value, (*_IMMUTABLE, tuple, list, dict)):
        yield from (each for each in leaves(value) if each is not value)


# Answers questions about a dataset by looking at some of its items, and leaves no trace in the training process.
#
# The look happens in a forked process: random states, counters, caches and generators of the dataset's own
# stay as they are. Where a process cannot be forked, it happens here, and the random states are put back.
# What cannot be found out in time is None: not known.


_QUICK_S = 10.0
_LENGTHS_S = 60.0  # for the lengths of all items: about what a user waits for without asking what is going on


def seen(arguments: dict[str, Any]) -> WorkerEffects:
    """What workers would change of this loader's batches."""
    found = _aside(lambda: look(arguments), _QUICK_S)
    return found if isinstance(found, WorkerEffects) else NOTHING_KNOWN


def shards(dataset: Any, init: Callable[[int], None] | None) -> bool:
    """Whether an IterableDataset asks which worker it is in; False where that is not known."""
    return _can_fork() and _aside(lambda: _asks(dataset, init), _QUICK_S) is True


def lengths(dataset: Any, most: int) -> Sequence[int] | None:
    """Of the first `most` items, of all with 0; None where they have none, or it would take too long."""
    count = min(most or len(dataset), len(dataset))
    known = _stated(dataset)
    if known is not None and len(known) == len(dataset):
        return [int(each) for each in known[:count]]
    found: list[int] | None = _aside(lambda: _read_lengths(dataset, count), _LENGTHS_S)
    return found


def _stated(dataset: Any) -> Any:
    """What the dataset says by itself: `lengths`, also of the dataset that a Subset is of."""
    own = getattr(dataset, "lengths", None)
    if own is None and hasattr(dataset, "indices") and (inner := _stated(dataset.dataset)) is not None:
        return [inner[index] for index in dataset.indices]
    return own if hasattr(own, "__getitem__") and hasattr(own, "__len__") else None


def _read_lengths(dataset: Any, count: int) -> list[int] | None:
    found: list[int] = []
    for index in range(count):
        size = length_of(dataset[index])
        if size is None:
            return None
        found.append(size)
    return found


class _Asked:
    """Stands for torch's WorkerInfo and remembers whether anybody looked at it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.seed = 0
        self.asked = False

    @property
    def id(self) -> int:
        self.asked = True
        return 0

    @property
    def num_workers(self) -> int:
        self.asked = True
        return 2


def _asks(dataset: Any, init: Callable[[int], None] | None) -> bool:
    info = _Asked(dataset)
    worker._worker_info = info  # type: ignore[assignment]
    if init is not None:
        init(0)
    next(iter(dataset), None)
    return info.asked


def _can_fork() -> bool:
    return hasattr(os, "fork") and sys.platform != "darwin"


def _aside(act: Callable[[], Any], limit_s: float) -> Any:
    if _can_fork():
        return boundary.attempt(_forked, act, limit_s)
    with random_states.kept():
        return boundary.attempt(act)


def _forked(look: Callable[[], Any], limit_s: float) -> Any:
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # of a fork beside threads: a hang ends at the limit
        pid = os.fork()
    if pid == 0:
        _answer(look, theirs)
    os.close(theirs)
    try:
        answer = _read(ours, time.monotonic() + limit_s)
    finally:
        os.close(ours)
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)
    return pickle.loads(answer) if answer else None


def _answer(look: Callable[[], Any], pipe: int) -> None:
    """In the child: nothing of it may return into the script."""
    try:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)  # what items print or warn of has its own time
        torch.set_num_threads(
            1
        )  # a forked process has none of its parent's OpenMP threads, but waits for them
        with os.fdopen(pipe, "wb") as file:
            pickle.dump(look(), file)
    finally:
        os._exit(0)


def _read(pipe: int, until: float) -> bytes:
    parts: list[bytes] = []
    while select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
        part = os.read(pipe, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
    return b""
