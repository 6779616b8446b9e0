"""Batches fetched in this process: by the consumer itself, or by threads, where items let go of the GIL."""

from __future__ import annotations

import io
import threading
import weakref
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from hotlap.data.loader_fetch import Fetched, Source, fetch_of
from hotlap.data.loader_seeds import Draws

WATCHED = 4  # batches after which items that have not drawn are taken not to draw
END_S = 5.0  # how long a thread may still take to end


class InProcess:
    """The consumer fetches each batch when it asks for it, as torch does without workers.

    With `seed`, batches are seeded by their number as long as it is not known that items draw nothing.
    """

    name = "in-process"

    def __init__(self, source: Source, seed: int | None = None) -> None:
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

    source: Source
    tasks: SimpleQueue[tuple[int, Any] | None] = field(default_factory=SimpleQueue)
    finished: dict[int, Fetched | BaseException] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    threads: list[threading.Thread] = field(default_factory=list)


class Threads:
    """`count` threads that fetch what is submitted."""

    name = "threads"

    def __init__(self, source: Source, count: int) -> None:
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
