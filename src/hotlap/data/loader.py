"""A drop-in for torch's DataLoader that finds out by itself how to run.

    loader = Loader(dataset, batch_size=32, shuffle=True)
    for batch in loader: ...
    print(loader.explain())

Batches are those of torch's DataLoader, in the same order. With a fixed `num_workers`, items that draw random numbers
draw what they would draw in torch; where hotlap chooses, each batch is seeded by its number (see loader_seeds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypedDict, Unpack

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, IterDataPipe, MapDataPipe

from hotlap.data import loader_fetch as seeds
from hotlap.data.budget import Budget
from hotlap.data.loader_fetch import Bad
from hotlap.data.loader_iter import (
    AUTO,
    AutoWorkers,
    LoaderIter,
    LoaderTuning,
    PassPosition,
    Wishes,
    no_processes,
)
from hotlap.errors import HotlapError

_POSITIONAL = (  # of torch's DataLoader, after `shuffle`
    *("sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout"),
    *("worker_init_fn", "multiprocessing_context", "generator"),
)


class Options(TypedDict, total=False):
    """The other arguments of torch's DataLoader, and two of our own.

    `way`: "in-process", "threads" or "processes" instead of a choice by measurement. `threads=False` forbids threads,
    for a dataset that several threads must not use at once.
    """

    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    collate_fn: Callable[[list[Any]], Any] | None
    pin_memory: bool
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    generator: torch.Generator | None
    prefetch_factor: int | None
    persistent_workers: bool
    pin_memory_device: str
    in_order: bool
    way: str
    threads: bool


class Loader(DataLoader[Any]):
    """torch's DataLoader with the same arguments, and these:

    `num_workers`: "auto" (the default) lets hotlap choose between the consumer's own thread, threads and processes; a
    number means so many processes (0: none), as in torch. `prefetch`: batches ahead in all, "auto" tunes it;
    torch's `prefetch_factor` is taken too. `skip_bad`: so many damaged items an epoch are left out and counted
    (`bad`), 0 raises at the first. `budget`: cores and bytes that may be used. With `timeout`, a worker that takes
    longer for a batch is replaced; torch would end the loop at once.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        *more: Any,
        num_workers: int | Literal["auto"] = AUTO,
        prefetch: int | Literal["auto"] = AUTO,
        skip_bad: int = 0,
        budget: Budget | None = None,
        **options: Unpack[Options],
    ) -> None:
        given: dict[str, Any] = {**dict(zip(_POSITIONAL, more, strict=False)), **options}
        workers = given.pop("num_workers", num_workers)
        chosen = workers == AUTO or isinstance(workers, AutoWorkers)
        self.prefetch, self.skip_bad, self.budget = prefetch, skip_bad, budget or Budget()
        self.way, self.threads = given.pop("way", AUTO), given.pop("threads", True)
        stream = isinstance(dataset, IterableDataset | MapDataPipe)
        if stream and skip_bad:
            raise HotlapError(
                f"skip_bad={skip_bad} with the stream {type(dataset).__name__}: after an error a stream has ended",
                "catch the error inside of the dataset, or make it map-style",
            )
        count = 0 if chosen and stream else AutoWorkers(self.budget.cores) if chosen else workers
        if chosen and not count:
            given = {**given, "prefetch_factor": None, "persistent_workers": False}
        super().__init__(dataset, batch_size, shuffle, num_workers=count, **given)
        factor = given.get("prefetch_factor")
        ahead = factor * int(count) if factor and not chosen else None if prefetch == AUTO else prefetch
        wishes = Wishes(None if chosen else count, ahead, self.way, skip_bad, self.threads, self.budget)
        self._running = LoaderTuning(self, wishes)
        self._start: Mapping[str, Any] | None = None
        self._progress = PassPosition()
        self._resume: Mapping[str, Any] | None = None
        self._skip = 0

    @property
    def bad(self) -> list[Bad]:
        """Items that were left out, since the loader was built."""
        return self._running.bad

    def explain(self) -> str:
        """What was chosen and why, in sentences."""
        return self._running.explain()

    def state_dict(self) -> dict[str, Any]:
        """Where the epoch under way stands: after the batch that the consumer has got last."""
        return state(self._start, self._progress.position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next pass goes on after the last batch of the pass that was saved."""
        self._resume = read(state)
        self._iterator = None

    def __iter__(self) -> Any:
        resume, self._resume = self._resume, None
        if resume is None or not resume["position"]:
            start = at_start(self)
            iterator: Any = super().__iter__()
        else:
            start = resume["start"]
            with as_at_start(self, start):
                iterator = self._resumed(resume["position"])
        self._start, self._progress = start, getattr(iterator, "progress", PassPosition())
        return iterator

    def _resumed(self, position: int) -> Any:
        stream = isinstance(self.dataset, IterableDataset)
        self._skip = 0 if stream else position
        try:
            iterator = super().__iter__()
        finally:
            self._skip = 0
        for _ in range(position if stream else 0):  # a stream can only be read again
            next(iterator)
        return iterator

    def _get_iterator(self) -> Any:
        if not self._is_ours():
            return super()._get_iterator()
        return LoaderIter(self, self._running, self._skip)

    def _is_ours(self) -> bool:
        """torch's own iterators do what we do not: pipes, batches out of order, systems without our memory."""
        if isinstance(self.dataset, IterDataPipe | MapDataPipe) or not self.in_order:
            return False
        return not (self._running.wishes.workers and no_processes())

    def __getstate__(self) -> dict[str, Any]:
        hidden = {"_running", "_progress", "_start", "_iterator"}
        return {name: value for name, value in self.__dict__.items() if name not in hidden} | {
            "_wishes": self._running.wishes
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        wishes = state.pop("_wishes")
        self.__dict__.update(state, _iterator=None, _start=None, _progress=PassPosition())
        self._running = LoaderTuning(self, wishes)


# Where an epoch stands, so that a new process can go on with the next sample.
#
# A sampler draws its order when an epoch begins. The state holds the random generators as they were then, and how
# many batches the consumer has had: the order is drawn again, and what was had is passed over without being fetched.


SCHEMA = 1


def at_start(loader: DataLoader[Any]) -> dict[str, Any]:
    """To be taken before an epoch begins."""
    return {
        "random": seeds.states(),
        "generators": {name: part.generator.get_state() for name, part in _drawing(loader)},
        "epochs": {name: part.epoch for name, part in _counting(loader)},
    }


def state(start: Mapping[str, Any] | None, position: int) -> dict[str, Any]:
    return {"schema": SCHEMA, "position": position, "start": start if position else None}


def read(kept: Mapping[str, Any]) -> Mapping[str, Any]:
    if kept.get("schema") != SCHEMA:
        raise HotlapError(
            f"this state of a loader has the schema {kept.get('schema')!r}, known is {SCHEMA}",
            "resume with the version of hotlap that wrote it",
        )
    return kept


@contextmanager
def as_at_start(loader: DataLoader[Any], start: Mapping[str, Any]) -> Iterator[None]:
    """The generators that samplers draw from are as they were; afterwards the global ones are the script's again."""
    script = seeds.states()
    seeds.restore(start["random"])
    for name, part in _drawing(loader):
        if name in start["generators"]:
            part.generator.set_state(start["generators"][name])
    for name, part in _counting(loader):
        part.set_epoch(start["epochs"].get(name, part.epoch))
    try:
        yield
    finally:
        seeds.restore(script)


def _parts(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    yield "loader", loader
    yield "sampler", loader.sampler
    yield "batch_sampler", loader.batch_sampler
    yield "inner", getattr(loader.batch_sampler, "sampler", None)


def _drawing(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    """Samplers with a generator of their own."""
    return (
        each for each in _parts(loader) if isinstance(getattr(each[1], "generator", None), torch.Generator)
    )


def _counting(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    """Samplers that count epochs, as DistributedSampler does."""
    return (
        each
        for each in _parts(loader)
        if hasattr(each[1], "set_epoch") and isinstance(getattr(each[1], "epoch", None), int)
    )
