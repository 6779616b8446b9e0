"""The processes of a loader: hired, told, heard, dismissed. Knows nothing of batches."""

from __future__ import annotations

import os
import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from typing import Any

from hotlap.data.loader_fetch import Source
from hotlap.data.ring import own_fork
from hotlap.data.workers_child import AT_ONCE, RECORD, Order, Post, Report, live

GRACE_S = 5.0  # as torch gives its workers to end by themselves

Heard = tuple[int, ...]


@dataclass(frozen=True)
class Staffing:
    """How workers are started. `in_turn`: batch i goes to worker i mod n and seeds are per worker, as in torch."""

    source: Source
    context: Any
    base_seed: int
    init: Callable[[int], None] | None = None
    in_turn: bool = True
    timeout: float = 0.0  # seconds at one batch after which a worker counts as hung; 0: never


@dataclass(eq=False)
class Worker:
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

    def tell(self, order: Order, number: int = 0, *rest: int) -> None:
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
        self.members: list[Worker] = []
        self._poll = select.poll()
        self._by_descriptor: dict[int, Worker] = {}
        self.stop = weakref.finalize(self, _stop, self.members, os.getpid())

    def hire(self, place: int, of: int, passed: int = 0) -> Worker:
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
        return self._enlisted(Worker(place, process, orders, reports))

    def _enlisted(self, worker: Worker) -> Worker:
        for descriptor in (worker.reports.fileno(), worker.process.sentinel):
            self._poll.register(descriptor, select.POLLIN)
            self._by_descriptor[descriptor] = worker
        self.members.append(worker)
        self.members.sort(key=lambda each: each.place)
        return worker

    def hear(self, timeout: float) -> Iterator[tuple[Worker, Heard | None]]:
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

    def bury(self, worker: Worker) -> list[Heard]:
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


def _stop(members: list[Worker], owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked copy: the processes are not its own
    for worker in members:
        worker.tell(Order.STOP)
    deadline = time.monotonic() + GRACE_S
    for worker in members:
        worker.process.join(max(0.0, deadline - time.monotonic()))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()
        _close(worker)
    members.clear()


def _close(worker: Worker) -> None:
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


__all__ = ["Crew", "Descriptor", "Heard", "Order", "Report", "Staffing", "Worker"]
