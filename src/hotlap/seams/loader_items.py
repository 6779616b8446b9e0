"""Answers questions about a dataset by looking at some of its items, and leaves no trace in the training process.

The look happens in a forked process: random states, counters, caches and generators of the dataset's own stay as they
are. Where a process cannot be forked, it happens here, and the random states are put back. What cannot be found out in
time is None: not known.
"""

from __future__ import annotations

import os
import pickle
import random
import select
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler
from torch.utils.data._utils import worker

from hotlap.probe import boundary
from hotlap.probe.content import same
from hotlap.probe.lengths import length_of

_QUICK_S = 10.0
_ENOUGH_S = 2.0  # after which no further item is looked at: what was seen counts
_LENGTHS_S = 60.0  # for the lengths of all items: about what a user waits for without asking what is going on
_DRAWN = 20  # draws of a sampler: one that shuffles in blocks may draw seldom, but not that seldom


def draws(dataset: Any) -> bool:
    """Whether an item draws random numbers, or comes out differently; True where that is not known."""
    return _aside(lambda: _items_draw(dataset), _QUICK_S) is not False


def lazy(sampler: Any) -> bool:
    """Whether a sampler draws from the global random numbers while it is iterated; torch's own do so at the start."""
    while type(sampler) is BatchSampler:
        sampler = sampler.sampler
    if sampler is None or type(sampler).__module__.startswith("torch.utils.data"):
        return False
    return _aside(lambda: _draws_late(sampler), _QUICK_S) is not False


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


def _items_draw(dataset: Any) -> bool:
    """The first, the middle one and the last item, each fetched twice under different random states."""
    began, count = time.monotonic(), len(dataset)
    for index in sorted({0, count // 2, count - 1}) if count else ():
        first, drew = _fetched(dataset, index, 1)
        if drew or not same(first, _fetched(dataset, index, 2)[0]):
            return True
        if time.monotonic() - began > _ENOUGH_S:
            break
    return False


def _fetched(dataset: Any, index: int, seed: int) -> tuple[Any, bool]:
    """The item as a loader fetches it, and whether it drew."""
    random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed)
    before = _states()
    at_once = getattr(dataset, "__getitems__", None)
    item = at_once([index]) if callable(at_once) else dataset[index]
    return item, not same(before, _states())


def _states() -> tuple[Any, ...]:
    numpy = sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy is not None else None
    return random.getstate(), torch.default_generator.get_state(), drawn


def _draws_late(sampler: Any) -> bool:
    indices = iter(sampler)
    next(indices, None)
    before = _states()
    for _ in islice(indices, _DRAWN):
        pass
    return not same(before, _states())


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


def _aside(look: Callable[[], Any], limit_s: float) -> Any:
    if _can_fork():
        return boundary.attempt(_forked, look, limit_s)
    with _put_back():
        return boundary.attempt(look)


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


@contextmanager
def _put_back() -> Iterator[None]:
    python, torchs, numpys = _states()
    try:
        yield
    finally:
        random.setstate(python)
        torch.default_generator.set_state(torchs)
        if numpys is not None:
            sys.modules["numpy"].random.set_state(numpys)
