"""What went wrong with the workers of a loader, and what is tried next."""

from __future__ import annotations

import functools
import os
import re
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any

from torch.utils.data import _utils

from hotlap.plan.record import wrapped
from hotlap.probe import boundary
from hotlap.probe.workers import end_with_parent
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_iterator import share_by_name

LOST_HANDING_OVER = 74
"""Exit code of a worker that could not hand over a batch: torch drops it and waits for ever."""
_CROWDED = re.compile(
    r"No space left on device|unable to (open|allocate|write to|resize) (shared memory|file)"
    r"|Too many open files|ancdata|out of shared memory",
    re.IGNORECASE,
)
_DYING_S = 1.0
MOST_IN_A_ROW = 3  # replaced without a batch in between: the next one would fail at the same sample


class Trouble(StrEnum):
    """A kind of fault that fresh workers can mend."""

    DIED = "died"
    HUNG = "hung"
    CROWDED = "crowded"  # shared memory is full, or there are too many open files in it


class HungError(RuntimeError):
    """No worker gave anything for longer than they are waited for."""


class GoneError(RuntimeError):
    """A worker has died."""


def trouble(iterator: Any, error: BaseException) -> Trouble | None:
    """None for what fresh workers would not mend, such as an error of the dataset's own."""
    codes = _codes(iterator, _DYING_S if isinstance(error, GoneError) else 0.0)
    if any(code in (-signal.SIGBUS, LOST_HANDING_OVER) for code in codes):
        return Trouble.CROWDED
    if codes or isinstance(error, GoneError):
        return Trouble.DIED
    if isinstance(error, HungError):
        return Trouble.HUNG
    crowded = isinstance(error, RuntimeError | OSError) and _CROWDED.search(str(error))
    return Trouble.CROWDED if crowded else None


def tell_lost_stream(iterator: Any, error: BaseException) -> None:
    """Why a stream ends with its worker, and what to do. Once, and only where a worker has died."""
    try:
        why = "" if iterator._hotlap.lost_told else _lost_stream(iterator, error)
    except RuntimeError:
        # torch's handler of SIGCHLD raises wherever the main thread happens to be, and has told it by then.
        if iterator._hotlap.lost_told:
            return
        raise
    if why:
        iterator._hotlap.lost_told = True
        print("\n".join(wrapped(why)), file=sys.stderr, flush=True)


def _lost_stream(iterator: Any, error: BaseException) -> str:
    cut_off = isinstance(error, ConnectionError | EOFError)
    if not any(_codes(iterator, _DYING_S if cut_off else 0.0)):
        return ""
    return (
        f"{told(iterator, Trouble.DIED, 0.0)} and is not replaced: its dataset is a stream, which does not say what "
        "the worker had read of it; a fresh one would leave samples out or give some twice -> go on from the last "
        "checkpoint; a dataset with numbered items (__getitem__ and __len__) is taken up again by hotlap"
    )


def _codes(iterator: Any, wait_s: float) -> list[int]:
    """How workers have ended. A process closes its connections some time before it counts as ended."""
    until = time.monotonic() + wait_s
    while True:
        codes = [worker.exitcode for worker in iterator._workers if worker.exitcode is not None]
        if codes or time.monotonic() >= until:
            return codes
        time.sleep(0.002)


def told(iterator: Any, kind: Trouble, waited_s: float) -> str:
    """What happened, in one clause."""
    if kind is Trouble.HUNG:
        return f"its workers gave nothing for {waited_s:.3g} s"
    if kind is Trouble.CROWDED:
        return "shared memory was full or out of files"
    over = [worker for worker in iterator._workers if worker.exitcode is not None]
    # Some workers of a stream may just have come to its end.
    ended = [worker for worker in over if worker.exitcode] or over
    ways = [f"{_way(worker.exitcode)} (pid {worker.pid})" for worker in ended]
    return f"a worker {' and another '.join(ways)}" if ways else "a worker died"


def _way(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@dataclass
class Rung:
    """How one loader is run now. `patience_s` doubles, so that an item that is only slow gets through in the end."""

    workers: int
    prefetch: int
    patience_s: float
    by_name: bool = False
    alone: bool = False
    losses: int = 0
    crowded: int = 0

    def down(self, kind: Trouble) -> None:
        if kind is Trouble.CROWDED:
            self._make_room()
            return
        self.losses += 1
        if self.losses > 1:  # once is chance
            self.workers = max(1, self.workers // 2)
        if kind is Trouble.HUNG:
            self.patience_s *= 2

    def _make_room(self) -> None:
        """Less in flight first, then fewer that write, then nobody: the training process needs no shared memory."""
        self.crowded += 1
        self.by_name = True
        if self.crowded == 1 and self.prefetch > 1:
            self.prefetch //= 2
        elif self.crowded <= 2 and (self.workers > 1 or self.prefetch > 1):
            self.prefetch, self.workers = 1, max(1, self.workers // 2)
        else:
            self.alone = True

    @property
    def untouched(self) -> bool:
        return not (self.losses or self.crowded or self.alone)

    @property
    def setups(self) -> tuple[Any, ...]:
        return (share_by_name,) if self.by_name else ()


# Notices the death of a worker without disturbing the script.
#
# torch raises at whatever line the script is when a worker dies: in the forward, in a callback, while it
# saves. It is enough to know at the next batch. Only where the main thread waits for workers, the waiting is
# ended, whatever lock or half a message it is for. And a worker that fails to hand over a batch is made to
# die, as torch would wait for it.


Original = Callable[..., Any]


class Deaths:
    """Of the workers of the iterators that are watched, see `loader_iterator.Watch`."""

    def __init__(self) -> None:
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()
        self._waiting: Any = None  # the iterator that the main thread waits for

    def install(self, fitter: Fitter) -> None:
        fitter.wrap(_utils.signal_handling, "_error_if_any_worker_fails", self._around_check)
        fitter.wrap(_utils.worker, "_worker_loop", _around_worker)

    def watch(self, iterator: Any) -> None:
        self._watched.add(iterator)

    @contextmanager
    def end_waiting(self, iterator: Any) -> Iterator[None]:
        """Within, the death of one of its workers raises GoneError. Signals reach the main thread alone."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before, self._waiting = self._waiting, iterator
        try:
            yield
        finally:
            self._waiting = before

    def _around_check(self, original: Original) -> Original:
        """torch's handler of SIGCHLD calls this."""

        @functools.wraps(original)
        def checked() -> None:
            try:
                original()
            except RuntimeError as error:
                owner = self._owner({int(each) for each in re.findall(r"\d+", str(error))})
                if owner is not None and not owner._hotlap.mendable:
                    boundary.attempt(tell_lost_stream, owner, error)
                if owner is None or not owner._hotlap.mendable:
                    raise
                owner._hotlap.gone = True
                if owner is self._waiting and not _deletes(sys._getframe(2)):
                    raise GoneError(str(error)) from None

        return checked

    def _owner(self, pids: set[int]) -> Any:
        for iterator in list(self._watched):
            if any(worker.pid in pids for worker in getattr(iterator, "_workers", ())):
                return iterator
        return None


def _deletes(frame: FrameType | None) -> bool:
    """Whether a signal came while an object is deleted: an error that is raised then gets lost, with a warning."""
    for _ in range(4):
        if frame is None or frame.f_code.co_name == "__del__":
            return frame is not None
        frame = frame.f_back
    return False


def _around_worker(original: Original) -> Original:
    @functools.wraps(original)
    def looped(kind: Any, dataset: Any, indices: Any, batches: Any, *rest: Any, **named: Any) -> None:
        boundary.attempt(end_with_parent)
        batches._on_queue_feeder_error = _lost_handing_over
        original(kind, dataset, indices, batches, *rest, **named)

    return looped


def _lost_handing_over(error: BaseException, _: Any) -> None:
    """A thread of the worker could not pickle a batch. torch would drop it, and wait for it."""
    traceback.print_exception(error, file=sys.stderr)
    sys.stderr.flush()
    os._exit(LOST_HANDING_OVER)
