"""Fetches one batch: its items by their keys, the damaged ones left out where that was asked for, then collated."""

from __future__ import annotations

import io
import random
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch.utils.data import TensorDataset, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher
from torch.utils.data._utils.worker import _generate_state

LONG_NS = 2_000_000
NOTHING = "hotlap: every item of the batch was damaged"  # compared by value: it travels between processes


@dataclass(frozen=True)
class FetchSpec:
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


def fetch_of(source: FetchSpec) -> Fetch:
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


def _items(source: FetchSpec, keys: Sequence[Any]) -> Fetched:
    if source.skip_bad:
        return _good_items(source, keys)
    dataset = source.dataset
    together = getattr(dataset, "__getitems__", None)
    return Fetched(source.collate(together(keys) if together else [dataset[key] for key in keys]))


def _good_items(source: FetchSpec, keys: Sequence[Any]) -> Fetched:
    """One by one: `__getitems__` would not say which of them is damaged."""
    good, bad = [], []
    for key in keys:
        try:
            good.append(source.dataset[key])
        except Exception:
            bad.append(Bad(key, traceback.format_exc()))
    return Fetched(source.collate(good) if good else NOTHING, bad)


def _one(source: FetchSpec, key: Any) -> Fetched:
    try:
        return Fetched(source.collate(source.dataset[key]))
    except Exception:
        if not source.skip_bad:
            raise
        return Fetched(NOTHING, [Bad(key, traceback.format_exc())])


def _is_gatherable(source: FetchSpec) -> bool:
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


# Random numbers of items: seeded as torch seeds its workers, or for each batch by its number.
#
# In a loader with a fixed number of workers, each is seeded with `base_seed + worker id` and gets every n-th
# batch, as in torch: items that draw are bit-equal to torch's. Where hotlap chooses how to run, that cannot
# be (who fetches a batch is decided by measurement), so each batch is seeded by its number: what it draws
# depends on nothing else.


_EPOCH_STRIDE = 0x9E3779B97F4A7C15  # far apart, so that batches of different epochs do not meet


def seed_worker(base_seed: int, worker: int) -> int:
    """As torch does at the start of a worker."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
    return seed


def seed_batch(base_seed: int, number: int) -> None:
    random.seed(base_seed + number)
    torch.default_generator.manual_seed((base_seed + number) & 0x7FFF_FFFF_FFFF_FFFF)
    np.random.seed(_generate_state(base_seed, number & 0xFFFF_FFFF))  # type: ignore[no-untyped-call]


def seed_of_epoch(base_seed: int, epoch: int) -> int:
    return (base_seed + epoch * _EPOCH_STRIDE) & 0x7FFF_FFFF_FFFF_FFFF if epoch else base_seed


def states() -> dict[str, Any]:
    """Of the generators that items and samplers may draw from."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
    }


def restore(kept: dict[str, Any]) -> None:
    torch.set_rng_state(kept["torch"])
    random.setstate(kept["python"])
    np.random.set_state(kept["numpy"])


def differ(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return (
        not torch.equal(one["torch"], two["torch"])
        or one["python"] != two["python"]
        or one["numpy"][2:] != two["numpy"][2:]
        or bool((one["numpy"][1] != two["numpy"][1]).any())
    )


class Draws:
    """Whether items fetched inside of `apart` drew from a global generator."""

    def __init__(self) -> None:
        self.seen = False

    @contextmanager
    def apart(self, base_seed: int, number: int) -> Iterator[None]:
        """Seeded by the batch's number; the script's own generators do not notice."""
        kept = states()
        try:
            seed_batch(base_seed, number)
            seeded = states()
            yield
            self.seen = self.seen or differ(seeded, states())
        finally:
            restore(kept)


# Batches fetched in this process: by the consumer itself, or by threads, where items let go of the GIL.


WATCHED = 4  # batches after which items that have not drawn are taken not to draw
END_S = 5.0  # how long a thread may still take to end


class InProcess:
    """The consumer fetches each batch when it asks for it, as torch does without workers.

    With `seed`, batches are seeded by their number as long as it is not known that items draw nothing.
    """

    name = "in-process"

    def __init__(self, source: FetchSpec, seed: int | None = None) -> None:
        self.count = 0
        self.draws = Draws()
        self._seed, self._watched = seed, 0
        self._fetch = fetch_of(source)
        self._keys: dict[int, Any] = {}

    def room(self) -> bool:
        return not self._keys

    def submit(self, number: int, keys: Any, _must: bool) -> bool:
        self._keys[number] = keys
        return True

    def collect(self, number: int) -> Fetched:
        keys = self._keys.pop(number)
        if self._seed is None or (self._watched >= WATCHED and not self.draws.seen):
            return self._fetch(keys)
        self._watched += 1
        with self.draws.apart(self._seed, number):
            return self._fetch(keys)

    def ready(self) -> int:
        return 0

    def resize(self, count: int) -> None: ...

    def close(self) -> None:
        self._keys.clear()


@dataclass
class _Bench:
    """What threads share; they must not know their owner, or it would never be collected."""

    source: FetchSpec
    tasks: SimpleQueue[tuple[int, Any] | None] = field(default_factory=SimpleQueue)
    finished: dict[int, Fetched | BaseException] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    threads: list[threading.Thread] = field(default_factory=list)


class FetchThreads:
    """`count` threads that fetch what is submitted."""

    name = "threads"

    def __init__(self, source: FetchSpec, count: int) -> None:
        self.count = 0
        self._bench = _Bench(source)
        self._pending: set[int] = set()
        self.close = weakref.finalize(self, _end, self._bench)
        self.resize(count)

    def room(self) -> bool:
        return True

    def submit(self, number: int, keys: Any, _must: bool) -> bool:
        self._pending.add(number)
        self._bench.tasks.put((number, keys))
        return True

    def collect(self, number: int) -> Fetched:
        with self._bench.changed:
            self._bench.changed.wait_for(lambda: number in self._bench.finished)
            fetched = self._bench.finished.pop(number)
        self._pending.discard(number)
        if isinstance(fetched, BaseException):
            raise fetched
        return fetched

    def settle(self) -> None:
        """Wait until all that was submitted is fetched."""
        with self._bench.changed:
            self._bench.changed.wait_for(lambda: self._pending <= self._bench.finished.keys())

    def peek(self, number: int) -> Fetched | BaseException:
        return self._bench.finished[number]

    def ready(self) -> int:
        return len(self._bench.finished)

    def resize(self, count: int) -> None:
        for _ in range(self.count - count):
            self._bench.tasks.put(None)
        for _ in range(count - self.count):
            thread = threading.Thread(target=_fetch_on, args=(self._bench,), daemon=True, name="hotlap-fetch")
            self._bench.threads.append(thread)
            thread.start()
        self.count = count


def _fetch_on(bench: _Bench) -> None:
    fetch = fetch_of(bench.source)
    while (task := bench.tasks.get()) is not None:
        number, keys = task
        fetched: Fetched | BaseException
        try:
            fetched = fetch(keys)
        except BaseException as fault:
            fetched = fault
        with bench.changed:
            bench.finished[number] = fetched
            bench.changed.notify_all()
        del fetched, task


def _end(bench: _Bench) -> None:
    while not bench.tasks.empty():  # what nobody has begun yet is not wanted any more
        bench.tasks.get()
    for _ in bench.threads:
        bench.tasks.put(None)
    for thread in bench.threads:
        thread.join(END_S)


def hazard(dataset: Any, depth: int = 3) -> str:
    """What stands against fetching from several threads, as far as one can see from outside; "" for nothing."""
    if isinstance(dataset, io.IOBase):
        return "the dataset holds an open file, whose position threads would share"
    module = type(dataset).__module__.partition(".")[0]
    if module in {"h5py", "sqlite3", "lmdb", "zipfile", "tarfile"}:
        return f"the dataset holds an object of {module}, which is not made for several threads"
    if depth == 0 or not hasattr(dataset, "__dict__"):
        return ""
    inner = (hazard(each, depth - 1) for each in list(vars(dataset).values()))
    return next((found for found in inner if found), "")
