"""How a loader runs, kept from epoch to epoch: its limits, what was measured, what was left out."""

from __future__ import annotations

import multiprocessing
from dataclasses import dataclass, field
from typing import Any, Final

import torch.multiprocessing
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind

from hotlap.data import ring, threads
from hotlap.data.budget import Budget
from hotlap.data.loader_fetch import Bad, Source
from hotlap.data.tuner import IN_PROCESS, PROCESSES, THREADS, Setting, Story, Strategy, Tuner
from hotlap.data.tuning import Limits, chosen_by_user, measured
from hotlap.units import duration, share, size

AUTO: Final = "auto"
LEAST_AHEAD = 4  # with fewer, one worker and the consumer wait for each other at every cheap batch


class AutoWorkers(int):
    """A number of workers that hotlap may change. An int, because frameworks read and pass on `num_workers`."""


@dataclass
class Wishes:
    """What the user asked for. `workers` and `ahead` are None where hotlap chooses."""

    workers: int | None = None
    ahead: int | None = None
    way: str = AUTO
    skip_bad: int = 0
    threads: bool = True
    budget: Budget = field(default_factory=Budget)


class Running:
    """The tuner of one loader and its record."""

    def __init__(self, loader: DataLoader[Any], wishes: Wishes) -> None:
        self.wishes = wishes
        self.story = Story()
        self.source = Source(
            loader.dataset,
            loader._dataset_kind == _DatasetKind.Iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
            wishes.skip_bad > 0,
        )
        self.context = loader.multiprocessing_context or torch.multiprocessing.get_context()
        self.limits = Limits(wishes.budget, workers=wishes.workers, ahead=wishes.ahead)
        self.limits.no_threads = "" if wishes.threads else "they were not allowed"
        self.limits.no_threads = self.limits.no_threads or threads.hazard(loader.dataset)
        self.limits.no_processes = no_processes()
        self.chosen = wishes.workers is None and wishes.way == AUTO and not self.source.iterable
        self.tuner = Tuner(self._strategy(loader))
        self.threads_checked = False
        self.bad: list[Bad] = []
        self.replaced = 0
        self.ring_bytes = 0

    def _strategy(self, loader: DataLoader[Any]) -> Strategy:
        wishes = self.wishes
        if self.chosen and loader.worker_init_fn is None:
            return measured(self.limits, self.story)
        workers = wishes.workers
        if workers is None:
            workers = 0 if self.source.iterable else wishes.budget.cores
            why = (
                "It is a stream: the number of workers decides which samples it yields, so hotlap does not choose it."
                if self.source.iterable
                else "There is a worker_init_fn: items are fetched in worker processes, one for each core."
            )
            self.story.tell(why)
        way = wishes.way if wishes.way != AUTO else PROCESSES if workers else IN_PROCESS
        if way == IN_PROCESS:
            return chosen_by_user(Setting(IN_PROCESS), self.limits, self.story)
        workers = max(1, workers)
        return chosen_by_user(
            Setting(way, workers, wishes.ahead or max(LEAST_AHEAD, 2 * workers)), self.limits, self.story
        )

    def forbid_threads(self, reason: str) -> None:
        if not self.limits.no_threads:
            self.limits.no_threads = reason
            if self.tuner.setting.way == THREADS:
                self.story.tell(f"Threads are left out: {reason}.")
                self.tuner.give_up()

    def forbid_processes(self, reason: str) -> None:
        self.limits.no_processes = reason
        self.story.tell(f"Worker processes are left out: {reason}.")
        self.tuner.give_up()

    def explain(self) -> str:
        """What was chosen and why."""
        lines = list(self.story.lines)
        seen, setting = self.tuner.last, self.tuner.setting
        if seen is None:
            lines.append("Too few batches were seen so far to say more.")
        else:
            lines.append(
                f"Now: {setting}, {setting.ahead} ahead. In the last {seen.batches} batches that were counted the "
                f"consumer waited {share(seen.waiting)} of its time, {duration(seen.wait_s / seen.batches)} a batch."
            )
        if self.ring_bytes:
            lines.append(f"The ring of shared memory holds {size(self.ring_bytes)}.")
        if self.replaced:
            lines.append(f"Workers that had died or hung were replaced {self.replaced} times.")
        if self.bad:
            lines.append(
                f"{len(self.bad)} damaged items were left out, the last is item {self.bad[-1].key!r}."
            )
        return "\n".join(lines)


def no_processes() -> str:
    """Why worker processes cannot be had here, or ""."""
    if not ring.available():
        return "this system has no memory that processes can share without a name"
    if multiprocessing.current_process().daemon:
        return "this is a worker process itself, which may not have its own"
    return ""
