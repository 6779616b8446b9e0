"""When a batch that a setting served is made again and compared: at random moments, within a share of the time.

The first batch is audited. After that each waits until what the last one took is less than `share` of
the time since, and for a random while longer, so that a change that comes and goes with a period is met as well.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import TypeVar

Choice = TypeVar("Choice")

SHARE = 0.003  # of the time: with comparing what items depend on and a glance for each batch at most 0.01
_LONGEST_WAIT = 1.5  # times the shortest one that keeps within the share


class Audit:
    """Ask `due()` once for each batch. `unaudited`: batches since the last audit that agreed."""

    def __init__(
        self, share: float = SHARE, seed: int | None = None, clock: Callable[[], float] | None = None
    ) -> None:
        self.unaudited = 0
        self._pace = Pace(share, clock)
        self._random = random.Random(seed)  # its own: the script's numbers do not move

    def due(self) -> bool:
        """Whether the batch that is about to be served should be made again."""
        self.unaudited += 1
        return self._pace.due()

    def pick(self, choices: Sequence[Choice]) -> Choice:
        """One of them by chance, without the random numbers of the script."""
        return choices[self._random.randrange(len(choices))]

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around an audit: what it takes decides when the next one is due."""
        with self._pace.timed(self._random.uniform(1.0, _LONGEST_WAIT)):
            yield

    def agreed(self) -> None:
        """The batch was the same, so those before it are taken to be."""
        self.unaudited = 0


# When work that may take a share of the time is due again, by a clock that stands still while others have the core.
#
# A check of a tenth of a millisecond is over before the scheduler gives the core to somebody else, and a step
# is not: on a machine with ten busy neighbours a hundredth of the clock's time would be a tenth of the job's
# own.


_local = threading.local()


def own_time() -> float:
    """Seconds without those that this thread was ready to run and had no core. Where that is not counted, the clock's.

    What it waits for by itself (a disk, a GPU, its workers) counts: work that is done meanwhile costs as much of it.
    """
    return time.perf_counter() - _waited_s()


def _waited_s() -> float:
    """Linux counts it for each thread; the file is opened once, and again after a fork."""
    if getattr(_local, "process", None) != os.getpid():
        _local.process, _local.count = os.getpid(), _Count()
    return float(_local.count.waited_s())


class _Count:
    """The scheduler's own count of the thread that makes this; the file goes with the thread."""

    def __init__(self) -> None:
        try:
            task = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._file = os.open(task, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def waited_s(self) -> float:
        try:
            return int(os.pread(self._file, 64, 0).split()[1]) / 1e9 if self._file >= 0 else 0.0
        except (OSError, ValueError, IndexError):
            return 0.0

    def __del__(self) -> None:
        if self._file >= 0:
            os.close(self._file)


class Pace:
    """Ask `due()` as often as there is an occasion: most answers cost one look at the clock."""

    def __init__(self, share: float, clock: Callable[[], float] | None = None) -> None:
        self._share = share
        self._own, self._clock = clock or own_time, clock or time.perf_counter
        self._ended = self._own()
        self._next = self._not_before = -inf

    def due(self) -> bool:
        """The thread's own time passes no faster than the clock's, so the clock alone can say no."""
        now = self._clock()
        if now < self._not_before:
            return False
        left = self._next - self._own()
        self._not_before = now + left
        return left <= 0.0

    @property
    def credit_s(self) -> float:
        """What the work may take now, by the time since it was done last."""
        return self._share * max(0.0, self._own() - self._ended)

    @contextmanager
    def timed(self, longer: float = 1.0) -> Iterator[None]:
        """Around the work: what it takes decides when it is due again, `longer` times the shortest wait."""
        began = self._own()
        try:
            yield
        finally:
            self._ended = self._own()
            wait_s = max(0.0, self._ended - began) / self._share * longer
            self._next, self._not_before = self._ended + wait_s, self._clock() + wait_s
