"""One pass over a loader: asks for batches ahead, gives them out in order, whoever fetches them.

It is one of torch's own iterators (the sampler, the seeds, the length, the marks of the profiler are torch's); only
where the next batch comes from is different.
"""

from __future__ import annotations

import pickle
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader
from torch.utils.data._utils.pin_memory import pin_memory
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotlap.data.loader_fetch import NOTHING, Fetched, alike, bytes_of, fetch_of
from hotlap.data.loader_running import AutoWorkers, Running
from hotlap.data.loader_seeds import seed_of_epoch
from hotlap.data.ring import Ring
from hotlap.data.threads import InProcess, Threads
from hotlap.data.tuner import IN_PROCESS, THREADS, Setting
from hotlap.data.workers import EndOfStream, Workers
from hotlap.data.workers_crew import Staffing
from hotlap.errors import HotlapError

Way = InProcess | Threads | Workers


@dataclass
class Asked:
    """A batch that is under way. `fetched`: it is here already."""

    number: int
    keys: Any
    way: Way
    setting: Setting
    fetched: Fetched | None = None


@dataclass
class Progress:
    """How many batches of its sampler a pass has given to the consumer; 0 again when it has ended."""

    position: int = 0


class LoaderIter(_BaseDataLoaderIter):
    """`start`: how many batches of the sampler to pass over, to go on with an epoch."""

    def __init__(self, loader: DataLoader[Any], running: Running, start: int = 0) -> None:
        super().__init__(loader)
        self._running = running
        self._seed = int(self._base_seed)
        self._init_fn = loader.worker_init_fn
        self._epoch = 0
        self._way: Way | None = None
        self._ring: Ring | None = None
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
        self.progress = Progress(start)
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
        if self._running.tuner.setting.way != IN_PROCESS:
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
                fetched.reraise()  # type: ignore[no-untyped-call]
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

    def _ask_ahead(self) -> None:
        if self._running.tuner.setting.way != IN_PROCESS:
            self._ask()

    def _ask(self) -> None:
        """Keep as many batches under way as the setting of the day says."""
        if self._no_more:
            return
        setting = self._running.tuner.setting
        way = self._way_of(setting)
        while len(self._asked) < max(1, setting.ahead) and way.room():
            keys = next(self._keys, _NO_MORE)
            if keys is _NO_MORE:
                self._no_more = True
                return
            if not way.submit(self._number, keys, not self._asked):
                self._keys = chain([keys], self._keys)
                return
            self._asked.append(Asked(self._number, keys, way, setting))
            self._number += 1
        if isinstance(way, Threads) and self._running.chosen and not self._running.threads_checked:
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
            return InProcess(running.source, seed if running.chosen else None)
        if setting.way == THREADS:
            return Threads(running.source, setting.workers)
        in_turn = not running.chosen
        staffing = Staffing(
            running.source, running.context, self._seed, self._init_fn, in_turn, self._timeout
        )
        self._ring = self._ring or Ring(running.wishes.budget.ram)
        if running.tuner.last is not None:
            self._ring.expect(running.tuner.last.size)
        try:
            return Workers(staffing, setting.workers, self._ring, seed)
        except (OSError, TypeError, AttributeError, pickle.PicklingError) as fault:
            if not running.chosen:
                raise
            running.forbid_processes(f"they could not be started ({type(fault).__name__}: {fault})")
            return self._opened(running.tuner.setting)

    def _check_threads(self, way: Threads) -> None:
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
