"""Batches from worker processes, through a ring of shared memory.

Each worker has two pipes of its own and no lock is shared, so a worker may be killed at any moment. One that dies
or hangs is replaced, and the batches that it owed are fetched again, in the same order.
"""

from __future__ import annotations

import os
import pickle
import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
from torch._utils import ExceptionWrapper

from hotlap.data.loader_fetch import Fetched, FetchSpec
from hotlap.data.ring import PickleExtent, Slot, SlotPool, own_fork, read
from hotlap.data.workers_child import AT_ONCE, RECORD, Post, WorkerCommand, WorkerReply, live
from hotlap.errors import HotlapError

MOST_LIVES = 5  # a batch that took so many workers with it is not tried again
MOST_UNBORN = 20  # workers in a row that die while they start
LIVES_OF_A_HANG = 2  # a hang costs its whole timeout: fewer tries
START_S = 60.0  # on top of the timeout, for a worker that is still starting
MOST_HELD = 3  # slots that the consumer may hold on to before it gets copies
LOOK_S = 1.0  # how often silent workers are looked at
QUEUED = 2  # batches a worker has before it: one under way, one to go on with


class WorkerLostError(HotlapError, RuntimeError):
    """Workers die or hang at the same batch again and again."""


class EndOfStream(Exception):  # noqa: N818 (as StopIteration)
    """The worker that this batch was asked from has no more."""


@dataclass
class BatchTask:
    """A batch that was asked for. `lives`: what its workers have lost over it."""

    number: int
    keys: bytes
    slot: Slot
    written: PickleExtent | None = None
    ended: bool = False
    lives: int = 0
    cause: str = ""


class Workers:
    """`count` processes that fetch what is submitted; collected in whatever order the consumer asks."""

    name = "processes"

    def __init__(self, staffing: Staffing, count: int, ring: SlotPool, epoch_seed: int = 0) -> None:
        self.staffing, self.count, self.ring, self.epoch_seed = staffing, count, ring, epoch_seed
        self.replaced = 0
        self.crew = Crew(staffing, ring.handle)
        self._tasks: dict[int, BatchTask] = {}
        self._turn = 0
        self._unborn = 0  # workers that died before they had started, in a row
        for place in range(count):
            self.crew.hire(place, count)

    def room(self) -> bool:
        """Whether a worker should have another task now."""
        if self.staffing.in_turn:
            return bool(self._wanted())
        self._listen(0.0)
        return any(len(worker.owed) < QUEUED for worker in self._wanted())

    def submit(self, number: int, keys: Any, must: bool) -> bool:
        """Ask for a batch; False where there is no memory for it now, unless it is a must."""
        slot = self.ring.take(must)
        if slot is None:
            return False
        content = pickle.dumps(keys, protocol=5)
        if len(content) > slot.size:
            slot = self._larger(slot, len(content))
        task = self._tasks[number] = BatchTask(number, content, slot)
        self._hand(self._next_worker(), task)
        return True

    def collect(self, number: int) -> Fetched | ExceptionWrapper:
        """The batch; waits for it. Raises EndOfStream, WorkerLostError."""
        task = self._tasks[number]
        while task.written is None and not task.ended:
            self._listen(LOOK_S)
        del self._tasks[number]
        if task.written is None:
            self.ring.give_back(task.slot)
            raise EndOfStream
        return self._unpacked(task, task.written)

    def ready(self) -> int:
        """Batches that wait for the consumer."""
        self._listen(0.0)
        return sum(task.written is not None for task in self._tasks.values())

    def resize(self, count: int) -> None:
        """More workers are hired at once; of fewer, the last ones go when they owe nothing."""
        places = {worker.place for worker in self._wanted()}
        self.count = count
        for place in range(count):
            if place not in places:
                self.crew.hire(place, count)
        for worker in self._wanted()[count:]:
            worker.wanted = False
            self._let_go(worker)

    def begin_epoch(self, epoch_seed: int) -> None:
        """Workers that are kept start again; what was left of the last epoch is thrown away."""
        for number in list(self._tasks):
            with suppress(EndOfStream):
                self.collect(number)
        self.epoch_seed, self._turn = epoch_seed, 0
        there = {worker.place for worker in self.crew.members}
        for place in set(range(self.count)) - there:  # of a stream that had ended, and then its worker did
            self.crew.hire(place, self.count)
        for worker in self.crew.members:
            worker.delivered, worker.wanted = 0, True
            worker.tell(WorkerCommand.EPOCH)

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.crew.members]

    def close(self) -> None:
        self.crew.stop()

    def _wanted(self) -> list[WorkerProcess]:
        return [worker for worker in self.crew.members if worker.wanted]

    def _next_worker(self) -> WorkerProcess:
        if not self.staffing.in_turn:
            return min(self._wanted(), key=lambda worker: len(worker.owed))
        members = self.crew.members
        while True:
            worker = members[self._turn % len(members)]
            self._turn += 1
            if worker.wanted:
                return worker

    def _hand(self, worker: WorkerProcess, task: BatchTask) -> None:
        task.slot.put(task.keys)
        if not worker.owed:
            worker.since = time.monotonic()
        worker.owed[task.number] = task
        slot = task.slot
        worker.tell(WorkerCommand.FETCH, task.number, slot.offset, slot.size, len(task.keys), self.epoch_seed)

    def _unpacked(self, task: BatchTask, written: PickleExtent) -> Fetched | ExceptionWrapper:
        if self.ring.lent < MOST_HELD:
            array = self.ring.lend(task.slot)
        else:  # the consumer keeps its batches: the ring must not run dry
            array = np.array(np.frombuffer(task.slot.memory, np.uint8, written.end))
            self.ring.give_back(task.slot)
        content: Fetched | ExceptionWrapper = read(array, written)
        if isinstance(content, Fetched):
            content.size = written.end
        return content

    def _larger(self, slot: Slot, need: int) -> Slot:
        self.ring.expect(need)
        self.ring.give_back(slot)
        larger = self.ring.take(must=True)
        assert larger is not None
        return larger

    def _listen(self, timeout: float) -> None:
        for worker, report in self.crew.hear(timeout):
            if report is None:
                self._replace(worker, f"was ended ({_how(worker)})", 1)
            else:
                self._note(worker, report)
        if self.staffing.timeout:
            self._look_for_hangs()

    def _note(self, worker: WorkerProcess, report: Heard) -> None:
        kind, number, start, length = report[:4]
        if kind == WorkerReply.SETTLED:
            worker.settled, self._unborn = True, 0
            return
        task: BatchTask = worker.owed[number]
        if kind == WorkerReply.NEED:
            task.slot = self._larger(task.slot, start)
            if not worker.dead:
                worker.tell(WorkerCommand.GRANT, number, task.slot.offset, task.slot.size)
            return
        del worker.owed[number]
        worker.delivered += kind == WorkerReply.DONE
        if kind == WorkerReply.DONE:
            task.written = PickleExtent(start, length)
        else:
            task.ended, worker.wanted = True, False
        if not worker.dead:
            self._let_go(worker)

    def _let_go(self, worker: WorkerProcess) -> None:
        """Of a crew that was made smaller."""
        if not worker.wanted and not worker.owed and not self.staffing.source.iterable:
            self.crew.bury(worker)

    def _look_for_hangs(self) -> None:
        for worker in list(self.crew.members):
            patience = self.staffing.timeout + (0.0 if worker.settled else START_S)
            if worker.owed and time.monotonic() - worker.since > patience:
                for report in self.crew.bury(worker):
                    self._note(worker, report)
                self._replace(worker, f"timed out after {self.staffing.timeout:g} seconds", LIVES_OF_A_HANG)

    def _replace(self, worker: WorkerProcess, cause: str, lives: int) -> None:
        owed: list[BatchTask] = list(worker.owed.values())
        if owed:
            self._blame(worker, owed[0], cause, lives)
        if not worker.wanted and not owed:
            return
        self.replaced += 1
        successor = self.crew.hire(worker.place, self.count, worker.delivered)
        successor.wanted, successor.delivered = worker.wanted, worker.delivered
        for task in owed:
            self._hand(successor, task)

    def _blame(self, worker: WorkerProcess, task: BatchTask, cause: str, lives: int) -> None:
        """The batch under way, unless the worker had not begun with it."""
        if worker.settled:
            task.lives += lives
        else:
            self._unborn += 1
        if task.lives >= MOST_LIVES or self._unborn >= MOST_UNBORN:
            raise _lost(task, cause)


def _how(worker: WorkerProcess) -> str:
    code = worker.exit_code
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _lost(task: BatchTask, cause: str) -> WorkerLostError:
    keys = pickle.loads(task.keys)
    shown = f"{keys!r:.200}"
    return WorkerLostError(
        f"DataLoader worker {cause} again and again at batch {task.number}, with the items {shown}",
        "fetch these items by hand to see why; a worker may also be short of memory",
    )


# The processes of a loader: hired, told, heard, dismissed. Knows nothing of batches.


GRACE_S = 5.0  # as torch gives its workers to end by themselves

Heard = tuple[int, ...]


@dataclass(frozen=True)
class Staffing:
    """How workers are started. `in_turn`: batch i goes to worker i mod n and seeds are per worker, as in torch."""

    source: FetchSpec
    context: Any
    base_seed: int
    init: Callable[[int], None] | None = None
    in_turn: bool = True
    timeout: float = 0.0  # seconds at one batch after which a worker counts as hung; 0: never


@dataclass(eq=False)
class WorkerProcess:
    """One process in its place. `owed` are the tasks that it has, oldest first."""

    place: int
    process: Any
    orders: Connection
    reports: Connection
    owed: dict[int, Any] = field(default_factory=dict)
    delivered: int = 0  # in this epoch
    since: float = field(default_factory=time.monotonic)  # when it began with what it does now
    settled: bool = False
    wanted: bool = True  # False: it gets no more tasks
    dead: bool = False
    exit_code: int | None = None

    def tell(self, order: WorkerCommand, number: int = 0, *rest: int) -> None:
        record = RECORD.pack(order, number, *rest, *([0] * (4 - len(rest))))
        with suppress(BrokenPipeError):  # it has died: heard of soon
            os.write(self.orders.fileno(), record)

    def reports_left(self) -> list[Heard]:
        found: list[Heard] = []
        with suppress(BlockingIOError):
            full = RECORD.size * AT_ONCE
            while content := os.read(self.reports.fileno(), full):
                found += RECORD.iter_unpack(content)
                if len(content) < full:
                    break
        return found


class Crew:
    """Workers, and one ear for all of them."""

    def __init__(self, staffing: Staffing, handle: int) -> None:
        self.staffing, self._handle = staffing, handle
        self.members: list[WorkerProcess] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, WorkerProcess] = {}
        self.stop = weakref.finalize(self, _stop, self.members, os.getpid())

    def hire(self, place: int, of: int, passed: int = 0) -> WorkerProcess:
        """Start a process; `passed` are batches of its stream that were delivered before."""
        staffing = self.staffing
        order_end, orders = staffing.context.Pipe(duplex=False)
        reports, report_end = staffing.context.Pipe(duplex=False)
        by_batch = not staffing.in_turn
        post = Post(staffing.source, place, of, staffing.base_seed, by_batch, staffing.init, passed)
        ours = [orders, reports, *(end for each in self.members for end in (each.orders, each.reports))]
        inherits = staffing.context.get_start_method() == "fork"
        process = staffing.context.Process(
            target=live,
            args=(post, Descriptor(self._handle), order_end, report_end, ours if inherits else []),
            daemon=True,
        )
        with own_fork():
            process.start()
        order_end.close()
        report_end.close()
        os.set_blocking(reports.fileno(), False)
        return self._enlisted(WorkerProcess(place, process, orders, reports))

    def _enlisted(self, worker: WorkerProcess) -> WorkerProcess:
        for descriptor in (worker.reports.fileno(), worker.process.sentinel):
            self._poll.register(descriptor, select.POLLIN)
            self._by_descriptor[descriptor] = worker
        self.members.append(worker)
        self.members.sort(key=lambda each: each.place)
        return worker

    def hear(self, timeout: float) -> Iterator[tuple[WorkerProcess, Heard | None]]:
        """Reports that have come, None for a worker that has died after its last one."""
        events = self._poll.poll(timeout * 1000)
        if not events and timeout:  # a sentinel may be kept open by a process that the worker left behind
            dead = [each for each in self.members if not each.process.is_alive()]
        else:
            dead = [
                worker
                for descriptor, what in events
                if descriptor == (worker := self._by_descriptor[descriptor]).process.sentinel
                or what & select.POLLHUP
            ]
        for descriptor, _ in events:
            speaker = self._by_descriptor.get(descriptor)
            if speaker is not None and descriptor == speaker.reports.fileno():
                for report in speaker.reports_left():
                    yield speaker, report
                speaker.since = time.monotonic()
        for worker in dead:
            if not worker.dead:
                yield from ((worker, report) for report in self.bury(worker))
                yield worker, None

    def bury(self, worker: WorkerProcess) -> list[Heard]:
        """End it for good, and what it had still reported. Its slots are safe to use again afterwards."""
        worker.dead = True
        worker.process.kill()
        worker.process.join()
        worker.exit_code = worker.process.exitcode
        last = worker.reports_left()
        for descriptor in (worker.reports.fileno(), worker.process.sentinel):
            self._poll.unregister(descriptor)
            del self._by_descriptor[descriptor]
        self.members.remove(worker)
        _close(worker)
        return last


def _stop(members: list[WorkerProcess], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked copy: the processes are not its own
    for worker in members:
        worker.tell(WorkerCommand.STOP)
    deadline = time.monotonic() + GRACE_S
    for worker in members:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        _close(worker)
    members.clear()


def _close(worker: WorkerProcess) -> None:
    worker.orders.close()
    worker.reports.close()
    with suppress(
        ValueError
    ):  # its end was noticed elsewhere (another thread, SIGCHLD ignored): it has none to tell
        worker.process.close()


class Descriptor:
    """A file descriptor that is inherited, or sent along, as the start method does it."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __reduce__(self) -> Any:
        return _received, (DupFd(self.handle),)


def _received(sent: Any) -> Descriptor:
    return Descriptor(sent.detach())


__all__ = ["Crew", "Descriptor", "Heard", "Staffing", "WorkerCommand", "WorkerProcess", "WorkerReply"]
