"""The life of a worker process: read a task, fetch its batch into the slot that came with it, say so.

Orders and reports are records of one size, far below what a pipe passes on as a whole: a kill at any moment leaves
no half of one. Everything larger (the keys, the batch, an exception) is in the slot.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import default_collate
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils import worker as torch_worker

from hotlap.data import loader_fetch as seeds
from hotlap.data.loader_fetch import Fetch, Fetched, FetchSpec, fetch_of
from hotlap.data.ring import Arena, DoesNotFitError, PickleExtent, collate_straight_into, map_slot, write

RECORD = struct.Struct("<6q")
AT_ONCE = 64  # records that are read together, far less than a pipe holds
LOOK_FOR_PARENT_S = 1.0


class WorkerCommand(IntEnum):
    """To a worker: (order, number, offset, size, length of the keys, -)."""

    FETCH = 0
    GRANT = 1  # a larger slot for the batch that did not fit
    EPOCH = 2  # begin anew; length: batches of the stream to pass over
    STOP = 3


class WorkerReply(IntEnum):
    """From a worker: (report, number, start, length, wall ns, cpu ns)."""

    DONE = 0
    NEED = 1  # start: bytes that would be enough
    END = 2  # the stream of this worker is exhausted
    SETTLED = 3  # it has started


@dataclass(frozen=True)
class Post:
    """What a worker is told when it is started. `by_batch`: seed each batch by its number."""

    source: FetchSpec
    worker: int
    workers: int
    base_seed: int
    by_batch: bool
    init: Callable[[int], None] | None
    passed: int = 0  # batches of the stream that an earlier worker in this place has delivered


def live(post: Post, ring: Any, orders: Connection, reports: Connection, strangers: list[Any]) -> None:
    """Target of the process. `ring` holds the descriptor of the memory."""
    for stranger in strangers:  # ends of the other workers' pipes: as long as they are open, nobody is missed
        stranger.close()
    try:
        signal_handling._set_worker_signal_handlers()  # type: ignore[attr-defined]
        torch.set_num_threads(1)
        _Worker(post, ring.handle, orders.fileno(), reports.fileno()).work()
    except KeyboardInterrupt:
        pass  # the parent raises it too


class _Worker:
    def __init__(self, post: Post, handle: int, orders: int, reports: int) -> None:
        self.post, self.handle, self.orders, self.reports = post, handle, orders, reports
        self.maps: dict[int, mmap.mmap] = {}
        self.arena: Arena | None = None
        self.waiting: tuple[int, Any] | None = None  # a batch that did not fit, until it gets a larger slot
        self.backlog: deque[tuple[int, ...]] = deque()  # what was ordered meanwhile
        self.fault: ExceptionWrapper | None = None
        self.fetch: Fetch | None = None
        self.to_pass = 0
        self.parent = os.getppid()
        self.ready = select.poll()
        self.ready.register(orders, select.POLLIN)
        os.set_blocking(orders, False)

    def work(self) -> None:
        self._settle_in()
        self._report(WorkerReply.SETTLED, 0)
        while orders := self._told():
            for order in RECORD.iter_unpack(orders):
                if not self._obey(*order):
                    return

    def _told(self) -> bytes:
        """All that was ordered meanwhile; waits for it only where there is nothing. Nothing: the parent has gone."""
        while True:
            with suppress(BlockingIOError):
                return os.read(self.orders, RECORD.size * AT_ONCE)
            if not self.ready.poll(LOOK_FOR_PARENT_S * 1000) and os.getppid() != self.parent:
                return b""

    def _settle_in(self) -> None:
        post = self.post
        seed = seeds.seed_worker(post.base_seed, post.worker)
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=post.worker, num_workers=post.workers, seed=seed, dataset=post.source.dataset
        )
        collates = torch_collate.default_collate_fn_map
        collates[torch.Tensor] = collate_straight_into(self._room, collates[torch.Tensor])
        try:
            if post.init is not None:
                post.init(post.worker)
            self._begin(post.passed)
        except Exception:
            self.fault = self._wrapped()

    def _room(self) -> Arena | None:
        """Only torch's own collate writes straight into the slot: any other might keep what it made."""
        return self.arena if self.post.source.collate is default_collate else None

    def _begin(self, passed: int) -> None:
        self.fetch = fetch_of(self.post.source)
        self.to_pass = passed

    def _wrapped(self) -> ExceptionWrapper:
        where = f"in DataLoader worker process {self.post.worker}"
        return ExceptionWrapper(where=where)  # type: ignore[no-untyped-call]

    def _obey(self, *record: int) -> bool:
        order, number, offset, size, length, seed = record
        if order == WorkerCommand.STOP:
            return False
        if order == WorkerCommand.GRANT:
            assert self.waiting is not None
            self.arena = Arena(self._map(offset, size))
            self._deliver(*self.waiting)
            while self.backlog and self.waiting is None:
                self._obey(*self.backlog.popleft())
        elif self.waiting is not None:
            self.backlog.append(record)  # batches of a worker come in their order
        elif order == WorkerCommand.EPOCH:
            self._begin(length)
        else:
            self._serve(number, self._map(offset, size), length, seed)
        return True

    def _map(self, offset: int, size: int) -> mmap.mmap:
        if offset not in self.maps:
            self.maps[offset] = map_slot(self.handle, offset, size)
        return self.maps[offset]

    def _serve(self, number: int, memory: mmap.mmap, length: int, seed: int) -> None:
        keys = pickle.loads(memory[:length])
        self.arena = Arena(memory)
        if self.post.by_batch:
            seeds.seed_batch(seed, number)
        try:
            content: Any = self.fault or self._fetched(keys)
        except Exception as error:
            if isinstance(error, StopIteration) and self.post.source.iterable:
                self._report(WorkerReply.END, number)
                return
            content = self._wrapped()
        self._deliver(number, content)

    def _fetched(self, keys: Any) -> Fetched:
        assert self.fetch is not None
        while self.to_pass:
            self.fetch(keys)
            self.to_pass -= 1
        return self.fetch(keys)

    def _deliver(self, number: int, content: Any) -> None:
        assert self.arena is not None
        self.waiting = None
        wall, cpu = (content.wall_ns, content.cpu_ns) if isinstance(content, Fetched) else (0, 0)
        try:
            written = self._written(content)
        except DoesNotFitError as miss:
            self.waiting = number, _off_the_slot(content)
            self._report(WorkerReply.NEED, number, miss.need)
            return
        self._report(WorkerReply.DONE, number, written.start, written.length, wall, cpu)

    def _written(self, content: Any) -> PickleExtent:
        assert self.arena is not None
        try:
            return write(content, self.arena)
        except DoesNotFitError:
            raise
        except Exception:
            self.arena.used = 0
            return write(_told(self._wrapped()), self.arena)

    def _report(self, report: WorkerReply, number: int, *rest: int) -> None:
        os.write(self.reports, RECORD.pack(report, number, *rest, *([0] * (4 - len(rest)))))


def _off_the_slot(content: Any) -> Any:
    """Copies that do not view the slot, which is about to be taken away."""
    return pickle.loads(pickle.dumps(content))


def _told(fault: ExceptionWrapper) -> ExceptionWrapper:
    """An exception of a class that cannot be pickled is told by its text."""
    try:
        pickle.dumps(fault)
    except Exception:
        fault.exc_type = RuntimeError
    return fault
