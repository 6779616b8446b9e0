"""Listens where items are made: fetch and collate, in DataLoader's workers and in the main process alike."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch.utils.data._utils import fetch, worker

from hotlap.probe import boundary, marks
from hotlap.probe.marks import Kind
from hotlap.probe.runqueue import RunQueue
from hotlap.probe.session import Session, now

_cpu = time.thread_time_ns
_COLLATE_IN, _COLLATE_OUT = marks.enter(Kind.COLLATE), marks.leave(Kind.COLLATE)
_QUEUED_EVERY = 4  # fetches: asking the scheduler takes microseconds


def install(session: Session) -> None:
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        session.wrap(fetcher, "fetch", functools.partial(_around_fetch, session))
    session.wrap(worker, "_worker_loop", functools.partial(_around_worker, session))


def _around_fetch(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin = session.append, session.origin
    enter, leave = marks.enter(Kind.FETCH), marks.leave(Kind.FETCH)
    queue, numbers = RunQueue(), itertools.count()
    os.register_at_fork(after_in_child=queue.forget)

    @functools.wraps(original)
    def fetched(self: Any, index: Any) -> Any:
        if type(self.collate_fn) is not _ListenedCollate:
            self.collate_fn = _ListenedCollate(self.collate_fn, session)
        queued = None if next(numbers) % _QUEUED_EVERY else boundary.attempt(queue.waited_ns)
        append((now() - origin) << 8 | enter)
        started = _cpu()
        try:
            batch = original(self, index)
        except BaseException:  # the end of a stream too: it brought no batch
            append((now() - origin) << 8 | leave)
            raise
        used = _cpu() - started
        own = max(0, used - self.collate_fn.take_cpu())
        append((now() - origin) << 8 | leave)
        append((self.collate_fn.items if self.auto_collation else 1) << 8 | marks.ITEMS)
        append(own << 8 | marks.FETCH_CPU)
        if queued is not None:
            # Items and collating waited for a core in proportion to what they used of it.
            waited = (boundary.attempt(queue.waited_ns) or queued) - queued
            append(waited * own // max(1, used) << 8 | marks.FETCH_QUEUED)
        return batch

    return fetched


class _ListenedCollate:
    """Marks collate inside a fetch; lives on the fetcher alone, the loader's own collate_fn is untouched."""

    def __init__(self, collate: Callable[..., Any], session: Session) -> None:
        self._collate = collate
        self._append, self._origin = session.append, session.origin
        self._cpu_ns = 0
        self.items = 1  # of the last batch

    def __call__(self, items: Any) -> Any:
        self.items = len(items) if isinstance(items, list) else 1
        self._append((now() - self._origin) << 8 | _COLLATE_IN)
        started = _cpu()
        try:
            return self._collate(items)
        finally:
            self._cpu_ns += _cpu() - started
            self._append((now() - self._origin) << 8 | _COLLATE_OUT)

    def take_cpu(self) -> int:
        """CPU nanoseconds since this was last asked."""
        spent, self._cpu_ns = self._cpu_ns, 0
        return spent


def _around_worker(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def looped(*args: Any, **kwargs: Any) -> None:
        session.thread = get_ident()
        session.endings.clear()
        session.facts.clear()
        boundary.attempt(session.sampler.start, session.thread)
        session.facts["role"] = "worker"
        session.facts["started_at"] = now() - session.origin
        session.portraits.append(functools.partial(_count_threads, session))
        try:
            original(*args, **kwargs)
        finally:
            session.end()

    return looped


def _count_threads(session: Session) -> None:
    """Threads that compute in this worker: those that no one started from Python, and its own."""
    try:
        native = sum(1 for _ in Path("/proc/self/task").iterdir()) - threading.active_count()
    except OSError:
        native = torch.get_num_threads() - 1
    session.note("threads", 1 + max(0, native))
