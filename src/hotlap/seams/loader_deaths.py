"""Notices the death of a worker without disturbing the script.

torch raises at whatever line the script is when a worker dies: in the forward, in a callback, while it saves. It is
enough to know at the next batch. Only where the main thread waits for workers, the waiting is ended, whatever lock or
half a message it is for. And a worker that fails to hand over a batch is made to die, as torch would wait for it.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from torch.utils.data import _utils

from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_rungs import LOST_HANDING_OVER, GoneError, tell_lost_stream

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
        batches._on_queue_feeder_error = _lost_handing_over
        original(kind, dataset, indices, batches, *rest, **named)

    return looped


def _lost_handing_over(error: BaseException, _: Any) -> None:
    """A thread of the worker could not pickle a batch. torch would drop it, and wait for it."""
    traceback.print_exception(error, file=sys.stderr)
    sys.stderr.flush()
    os._exit(LOST_HANDING_OVER)
