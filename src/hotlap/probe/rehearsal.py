"""Steps fed by the script's own items under another number of workers: what that setting brings on this job, here.

No model of a loader knows how a busy worker and the threads of the training process hold each other up: on few cores a
step can take three times as long beside a worker. So it is rehearsed after the window, in the same process, through
torch's own DataLoader with the script's dataset, sampler and collate. What it trains meanwhile is thrown away.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import dataloader as torchs

from hotlap.probe import boundary
from hotlap.probe.feed import Feed, workers_of
from hotlap.probe.session import Session, now

_LEAST_STEPS = 12
_SETTLING = 4  # steps after the batches that were ready when it began
_PREFETCH = 2
_LONGEST_WAIT_S = 60.0  # for a batch: a worker that hangs ends the rehearsal
_MOST_WORKERS = 8


def numbers_of_workers() -> list[int]:
    """To be rehearsed: none, and doubled as far as there are cores that the job may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [0, *(each for each in (1, 2, 4, _MOST_WORKERS) if each <= cores)]


class Forever:
    """A sampler that begins again when it ends."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from self._sampler


class RehearsalPhase:
    """Some steps with so many workers, after those on a replayed batch; none where the loader has no other setting."""

    def __init__(self, session: Session, feed: Feed, workers: int) -> None:
        self._session = session
        self._feed = feed
        self._workers = workers
        self._iterator: Any = None
        self._opened = False
        self._ended_at = 0
        self._walls: list[int] = []

    @property
    def steps(self) -> int:
        if self._feed.own_workers in (None, self._workers):
            return 0
        return 1 + self._settling + max(_LEAST_STEPS, self._session.control.phase)

    @property
    def _settling(self) -> int:
        return _SETTLING + 2 * _PREFETCH * self._workers

    def begin(self) -> None:
        self._feed.replays = True

    def step_made(self) -> None:
        if self._iterator is not None and self._feed.step_was_free:
            self._walls.append(now() - self._ended_at)
        if not self._opened:
            self._opened = True
            self._open()
        self._ended_at = now()

    def end(self) -> None:
        self._feed.forget()
        self._close()
        walls = self._walls[self._settling :]
        if len(walls) >= _LEAST_STEPS // 2:
            self._session.facts.setdefault("rehearsals", []).append([self._workers, walls])

    def _open(self) -> None:
        """The script has taken a batch from its loader: that one is rehearsed from now on."""
        own = self._feed.only_iterator()
        if workers_of(own) in (None, self._workers):
            return
        self._feed.wait_for_workers()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's opinion on the number of workers is being tested
            self._iterator = opened(own, self._workers)
        self._feed.source = self._next

    def _next(self) -> Any:
        """A batch; None, and the end of the rehearsal, where the items cannot be made this way."""
        if self._iterator is None:
            return None
        try:
            return next(self._iterator)
        except Exception as error:  # the script's own code may raise anything in a worker
            boundary.unmeasured(f"{self._workers} workers: {type(error).__name__} in the rehearsal")
            self._walls.clear()
            self._close()
            return None

    def _close(self) -> None:
        iterator, self._iterator = self._iterator, None
        if iterator is not None and self._workers:
            iterator._shutdown_workers()


def opened(own: Any, workers: int) -> Any:
    """An iterator over the same items; not through `iter`, so that nobody takes it for a loader of the script."""
    sampler: dict[str, Any] = {"batch_sampler": Forever(own._index_sampler)}
    if not own._auto_collation:
        sampler = {"sampler": Forever(own._index_sampler), "batch_size": None}
    loader: Any = DataLoader(
        own._dataset,
        **sampler,
        num_workers=workers,
        collate_fn=own._collate_fn,
        pin_memory=own._pin_memory,
        timeout=_LONGEST_WAIT_S if workers else 0,
        prefetch_factor=_PREFETCH if workers else None,
        worker_init_fn=getattr(own, "_worker_init_fn", None),
    )
    kind: Callable[[Any], Any] = (
        torchs._MultiProcessingDataLoaderIter if workers else torchs._SingleProcessDataLoaderIter
    )
    return kind(loader)
