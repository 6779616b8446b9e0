"""One pass over a loader: asks for batches ahead, gives them out in order, whoever fetches them.

It is one of torch's own iterators (the sampler, the seeds, the length, the marks of the profiler are torch's); only
where the next batch comes from is different.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
import time
import weakref
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

import torch.multiprocessing
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from hotlap.data import loader_fetch, ring
from hotlap.data.budget import Budget
from hotlap.data.loader_claim import TakenOver
from hotlap.data.loader_fetch import (
    NOTHING,
    Bad,
    Fetched,
    FetchSpec,
    FetchThreads,
    InProcess,
    alike,
    bytes_of,
    fetch_of,
    seed_of_epoch,
)
from hotlap.data.ring import SlotPool
from hotlap.data.tuning import (
    IN_PROCESS,
    PROCESSES,
    THREADS,
    Setting,
    Story,
    Strategy,
    Tuner,
    TuningLimits,
    chosen_by_user,
    measured,
)
from hotlap.data.workers import EndOfStream, Staffing, Workers
from hotlap.errors import HotlapError
from hotlap.ports.unseen import unseen
from hotlap.units import duration, share, size

Way = InProcess | FetchThreads | Workers


@dataclass
class Asked:
    """A batch that is under way. `fetched`: it is here already."""

    number: int
    keys: Any
    way: Way
    setting: Setting
    fetched: Fetched | None = None


@dataclass
class PassPosition:
    """How many batches of its sampler a pass has given to the consumer; 0 again when it has ended."""

    position: int = 0


class LoaderIter(_BaseDataLoaderIter):
    """`start`: how many batches of the sampler to pass over, to go on with an epoch."""

    @unseen
    def __init__(self, loader: DataLoader[Any], running: LoaderTuning, start: int = 0) -> None:
        super().__init__(loader)
        self._running = running
        self._seed = int(self._base_seed)
        self._init_fn = loader.worker_init_fn
        self._epoch = 0
        self._way: Way | None = None
        self._ring: SlotPool | None = None
        if running.taken_over is not None:
            weakref.finalize(self, running.taken_over.leave)
        if loader.num_workers and not isinstance(loader.num_workers, AutoWorkers):
            super()._reset(loader, first_iter=True)  # torch asks the sampler twice where it has workers
        self._begin(start)

    def _reset(self, loader: DataLoader[Any], first_iter: bool = False) -> None:
        """The next epoch, with workers that were kept."""
        super()._reset(loader, first_iter)
        self._epoch += 1
        if isinstance(self._way, Workers):
            self._way.begin_epoch(seed_of_epoch(self._seed, self._epoch))
        else:
            self._leave_way()
        self._begin(0)

    def _begin(self, start: int) -> None:
        self.progress = PassPosition(start)
        self._no_more = False
        self._asked: deque[Asked] = deque()
        self._keys: Iterator[Any] = self._sampler_iter
        deque(
            islice(self._keys, start), maxlen=0
        )  # now, while generators are as they were when the epoch began
        self._number = start
        self._old: list[Way] = []
        self._bad = 0
        self._left: float | None = None  # when the consumer got its last batch
        taken_over = self._running.taken_over
        if taken_over is not None:
            self._keys = taken_over.begin(self, self._keys)
        elif self._running.tuner.setting.way != IN_PROCESS:
            self._ask()

    def _next_data(self) -> Any:
        came = time.perf_counter()
        while True:
            self._ask()
            if not self._asked:
                self._end()
                raise StopIteration
            asked = self._asked.popleft()
            if self._running.tuner.hold_s:
                time.sleep(self._running.tuner.hold_s)
            try:
                fetched = asked.fetched or asked.way.collect(asked.number)
            except EndOfStream:
                continue
            except StopIteration:  # of a stream that is read here
                self._end()
                raise
            self.progress.position = asked.number + 1
            self._dismiss_old()
            if isinstance(fetched, ExceptionWrapper):
                self._ask_ahead()
                fetched = self._made_here(asked, fetched)
            if self._is_broken(asked, fetched):
                continue
            self._count(fetched)
            if not _is_nothing(fetched):
                break
        self._note(asked, fetched, came)
        self._ask_ahead()
        data = pin_memory(fetched.data, self._pin_memory_device) if self._pin_memory else fetched.data  # type: ignore[no-untyped-call]
        self._left = time.perf_counter()
        return data

    def _note(self, asked: Asked, fetched: Fetched, came: float) -> None:
        running, now = self._running, time.perf_counter()
        fetched.size = fetched.size or bytes_of(fetched.data)
        if isinstance(asked.way, InProcess) and asked.way.draws.seen:
            running.forbid_threads("items draw from random generators that threads would share")
        if self._left is not None:
            running.tuner.note(asked.setting, now - self._left, now - came, fetched)
        if isinstance(asked.way, Workers):
            running.replaced += asked.way.replaced
            asked.way.replaced = 0
        if self._ring is not None:
            running.ring_bytes = self._ring.bytes

    def _count(self, fetched: Fetched) -> None:
        if not fetched.bad:
            return
        self._bad += len(fetched.bad)
        self._running.bad += fetched.bad
        most = self._running.wishes.skip_bad
        if self._bad > most:
            last = fetched.bad[-1]
            raise HotlapError(
                f"{self._bad} items of this epoch are damaged, {most} were allowed. Item {last.key!r}:\n{last.error}",
                "mend them, or allow more with skip_bad",
            )

    def _is_broken(self, asked: Asked, fetched: Fetched) -> bool:
        """Whether this batch must be fetched anew; from then on the training process fetches all."""
        taken_over = self._running.taken_over
        if taken_over is None:
            return False
        reason = taken_over.broken(asked.keys, fetched.data, isinstance(asked.way, Workers))
        if not reason:
            return False
        self._go_on_here([asked.keys], asked.number, reason)
        return True

    def _made_here(self, asked: Asked, failed: ExceptionWrapper) -> Fetched:
        """What fails in a worker of ours: here it may be made, as where items start processes of their own, or the
        script meets its own error. One that has workers meets what they raise."""
        taken_over = self._running.taken_over
        if taken_over is None or taken_over.own_workers or not isinstance(asked.way, Workers):
            failed.reraise()  # type: ignore[no-untyped-call]
        made = fetch_of(self._running.source)(asked.keys)
        reason = (
            f"an item cannot be made in a worker ({getattr(failed.exc_type, '__name__', failed.exc_type)})"
        )
        self._go_on_here([], asked.number + 1, reason)
        return made

    def _go_on_here(self, keys: list[Any], number: int, reason: str) -> None:
        """From these keys on, and all that were asked for, the training process fetches."""
        self._keys = chain([*keys, *(each.keys for each in self._asked)], self._keys)
        self._number, self._no_more = number, False
        self._leave_way()
        self._running.forbid_processes(reason)
        print(
            f"hotlap: loader: {reason}; the training process fetches from here on",
            file=sys.stderr,
            flush=True,
        )

    def _ask_ahead(self) -> None:
        taken_over = self._running.taken_over
        if self._running.tuner.setting.way == IN_PROCESS:
            return
        if taken_over is None or not taken_over.may_end(self._number):
            self._ask()

    def _ask(self) -> None:
        """Keep as many batches under way as the setting of the day says."""
        if self._no_more:
            return
        setting, taken_over = self._running.tuner.setting, self._running.taken_over
        way = self._way_of(setting)
        while len(self._asked) < max(1, setting.ahead) and way.room():
            if self._asked and taken_over is not None and taken_over.may_end(self._number):
                return
            keys = next(self._keys, _NO_MORE)
            if keys is _NO_MORE:
                self._no_more = True
                return
            if not way.submit(self._number, keys, not self._asked):
                self._keys = chain([keys], self._keys)
                return
            self._asked.append(Asked(self._number, keys, way, setting))
            self._number += 1
        if isinstance(way, FetchThreads) and self._running.chosen and not self._running.threads_checked:
            self._check_threads(way)

    def _way_of(self, setting: Setting) -> Way:
        way = self._way
        if way is not None and way.name == setting.way:
            if way.count != setting.workers:
                way.resize(setting.workers)
            return way
        if way is not None:
            self._old.append(way)
        self._way = self._opened(setting)
        self._dismiss_old()
        return self._way

    def _opened(self, setting: Setting) -> Way:
        running = self._running
        seed = seed_of_epoch(self._seed, self._epoch)
        if setting.way == IN_PROCESS:
            as_script = running.taken_over is not None and not running.taken_over.own_workers
            return InProcess(running.source, seed if running.chosen and not as_script else None)
        if setting.way == THREADS:
            return FetchThreads(running.source, setting.workers)
        in_turn = not running.chosen
        staffing = Staffing(
            running.source, running.context, self._seed, self._init_fn, in_turn, self._timeout
        )
        self._ring = self._ring or SlotPool(running.wishes.budget.ram)
        if running.tuner.last is not None:
            self._ring.expect(running.tuner.last.size)
        if running.taken_over is not None:
            running.taken_over.start_workers()
        try:
            return Workers(staffing, setting.workers, self._ring, seed)
        except (OSError, TypeError, AttributeError, pickle.PicklingError) as fault:
            if not running.chosen:
                raise
            running.forbid_processes(f"they could not be started ({type(fault).__name__}: {fault})")
            return self._opened(running.tuner.setting)

    def _check_threads(self, way: FetchThreads) -> None:
        """Batches that threads fetched beside each other must be the same when fetched alone, or threads go."""
        self._running.threads_checked = True
        ours = [asked for asked in self._asked if asked.way is way]
        way.settle()
        fetch, same = fetch_of(self._running.source), True
        for asked in ours:
            alone = fetch(asked.keys)
            beside = way.peek(asked.number)
            if isinstance(beside, Fetched) and alike(alone.data, beside.data):
                alone.wall_ns, alone.cpu_ns = beside.wall_ns, beside.cpu_ns
            else:
                same = False
            asked.fetched = alone
        if not same:
            self._running.forbid_threads("items that several threads fetch at once come out differently")

    def _dismiss_old(self) -> None:
        needed = {id(asked.way) for asked in self._asked}
        for way in [each for each in self._old if id(each) not in needed]:
            way.close()
            self._old.remove(way)

    def _end(self) -> None:
        self.progress.position = 0
        if self._running.taken_over is not None:
            self._running.taken_over.end(self)
        if not self._persistent_workers:
            self._leave_way()

    def _leave_way(self) -> None:
        for way in [*self._old, *([self._way] if self._way is not None else [])]:
            way.close()
        self._old, self._way = [], None
        self._asked.clear()


_NO_MORE = object()


def _is_nothing(fetched: Fetched) -> bool:
    return isinstance(fetched.data, str) and fetched.data == NOTHING


# How a loader runs, kept from epoch to epoch: its limits, what was measured, what was left out.


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


class LoaderTuning:
    """The tuner of one loader and its record."""

    def __init__(self, loader: DataLoader[Any], wishes: Wishes) -> None:
        self.wishes = wishes
        self.story = Story()
        self.source = FetchSpec(
            loader.dataset,
            loader._dataset_kind == _DatasetKind.Iterable,
            loader._auto_collation,
            loader.collate_fn,
            loader.drop_last,
            wishes.skip_bad > 0,
        )
        self.context = loader.multiprocessing_context or torch.multiprocessing.get_context()
        self.limits = TuningLimits(wishes.budget, workers=wishes.workers, ahead=wishes.ahead)
        self.limits.no_threads = "" if wishes.threads else "they were not allowed"
        self.limits.no_threads = self.limits.no_threads or loader_fetch.hazard(loader.dataset)
        self.limits.no_processes = no_processes()
        self.chosen = wishes.workers is None and wishes.way == AUTO and not self.source.iterable
        self.tuner = Tuner(self._strategy(loader))
        self.taken_over: TakenOver | None = None  # the loader is the script's own
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
