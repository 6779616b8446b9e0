"""Batches from worker processes, through a ring of shared memory.

Each worker has two pipes of its own and no lock is shared, so a worker may be killed at any moment. One that dies
or hangs is replaced, and the batches that it owed are fetched again, in the same order.
"""

from __future__ import annotations

import pickle
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch._utils import ExceptionWrapper

from hotlap.data.loader_fetch import Fetched
from hotlap.data.ring import Ring, Slot
from hotlap.data.ring_codec import Written, read
from hotlap.data.workers_crew import Crew, Heard, Order, Report, Staffing, Worker
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
class Task:
    """A batch that was asked for. `lives`: what its workers have lost over it."""

    number: int
    keys: bytes
    slot: Slot
    written: Written | None = None
    ended: bool = False
    lives: int = 0
    cause: str = ""


class Workers:
    """`count` processes that fetch what is submitted; collected in whatever order the consumer asks."""

    name = "processes"

    def __init__(self, staffing: Staffing, count: int, ring: Ring, epoch_seed: int = 0) -> None:
        self.staffing, self.count, self.ring, self.epoch_seed = staffing, count, ring, epoch_seed
        self.replaced = 0
        self.crew = Crew(staffing, ring.handle)
        self._tasks: dict[int, Task] = {}
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
        task = self._tasks[number] = Task(number, content, slot)
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
            worker.tell(Order.EPOCH)

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self.crew.members]

    def close(self) -> None:
        self.crew.stop()

    def _wanted(self) -> list[Worker]:
        return [worker for worker in self.crew.members if worker.wanted]

    def _next_worker(self) -> Worker:
        if not self.staffing.in_turn:
            return min(self._wanted(), key=lambda worker: len(worker.owed))
        members = self.crew.members
        while True:
            worker = members[self._turn % len(members)]
            self._turn += 1
            if worker.wanted:
                return worker

    def _hand(self, worker: Worker, task: Task) -> None:
        task.slot.put(task.keys)
        if not worker.owed:
            worker.since = time.monotonic()
        worker.owed[task.number] = task
        slot = task.slot
        worker.tell(Order.FETCH, task.number, slot.offset, slot.size, len(task.keys), self.epoch_seed)

    def _unpacked(self, task: Task, written: Written) -> Fetched | ExceptionWrapper:
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

    def _note(self, worker: Worker, report: Heard) -> None:
        kind, number, start, length = report[:4]
        if kind == Report.SETTLED:
            worker.settled, self._unborn = True, 0
            return
        task: Task = worker.owed[number]
        if kind == Report.NEED:
            task.slot = self._larger(task.slot, start)
            if not worker.dead:
                worker.tell(Order.GRANT, number, task.slot.offset, task.slot.size)
            return
        del worker.owed[number]
        worker.delivered += kind == Report.DONE
        if kind == Report.DONE:
            task.written = Written(start, length)
        else:
            task.ended, worker.wanted = True, False
        if not worker.dead:
            self._let_go(worker)

    def _let_go(self, worker: Worker) -> None:
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

    def _replace(self, worker: Worker, cause: str, lives: int) -> None:
        owed: list[Task] = list(worker.owed.values())
        if owed:
            self._blame(worker, owed[0], cause, lives)
        if not worker.wanted and not owed:
            return
        self.replaced += 1
        successor = self.crew.hire(worker.place, self.count, worker.delivered)
        successor.wanted, successor.delivered = worker.wanted, worker.delivered
        for task in owed:
            self._hand(successor, task)

    def _blame(self, worker: Worker, task: Task, cause: str, lives: int) -> None:
        """The batch under way, unless the worker had not begun with it."""
        if worker.settled:
            task.lives += lives
        else:
            self._unborn += 1
        if task.lives >= MOST_LIVES or self._unborn >= MOST_UNBORN:
            raise _lost(task, cause)


def _how(worker: Worker) -> str:
    code = worker.exit_code
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


def _lost(task: Task, cause: str) -> WorkerLostError:
    keys = pickle.loads(task.keys)
    shown = f"{keys!r:.200}"
    return WorkerLostError(
        f"DataLoader worker {cause} again and again at batch {task.number}, with the items {shown}",
        "fetch these items by hand to see why; a worker may also be short of memory",
    )
