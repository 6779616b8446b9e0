"""Listens where items are made: fetch and collate, in DataLoader's workers and in the main process alike."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch.utils.data._utils import fetch, worker

from hotlap.probe import boundary, marks
from hotlap.probe.marks import Kind
from hotlap.probe.sampler import RunQueue
from hotlap.probe.session import Session, now
from hotlap.probe.workers import WORKERS_BYTES, end_with_parent

_cpu = time.thread_time_ns
_COLLATE_IN, _COLLATE_OUT = marks.enter(Kind.COLLATE), marks.leave(Kind.COLLATE)
_CLOCK_EVERY = 8  # fetches: asking for CPU time and for waits takes microseconds
_DEAR_NS = 1_000_000  # a fetch that takes so long is asked every time, which it does not notice


def install(session: Session) -> None:
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        session.wrap(fetcher, "fetch", functools.partial(_around_fetch, session))
    session.wrap(worker, "_worker_loop", functools.partial(_around_worker, session))


def _around_fetch(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin = session.append, session.origin
    enter, leave = marks.enter(Kind.FETCH), marks.leave(Kind.FETCH)
    queue, numbers = RunQueue(), itertools.count()
    os.register_at_fork(after_in_child=queue.forget)
    dear = False

    @functools.wraps(original)
    def fetched(self: Any, index: Any) -> Any:
        nonlocal dear
        clocked = next(numbers) % _CLOCK_EVERY == 0 or dear
        if not clocked and not session.is_worker:
            return original(self, index)  # on the critical path: those that are watched stand for the others
        collate = self.collate_fn = _ListenedCollate(self.collate_fn, session, clocked)
        queued = boundary.attempt(queue.waited_ns) if clocked else None
        entered = now()
        append((entered - origin) << 8 | enter)
        started = _cpu() if clocked else 0
        try:
            batch = original(self, index)
        except BaseException:  # the end of a stream too: it brought no batch
            append((now() - origin) << 8 | leave)
            raise
        finally:
            self.collate_fn = collate.original
        used = _cpu() - started if clocked else 0
        left = now()
        dear = left - entered > _DEAR_NS
        append((left - origin) << 8 | leave)
        append((collate.items if self.auto_collation else 1) << 8 | marks.ITEMS)
        if clocked:
            own = max(0, used - collate.cpu_ns)
            append(own << 8 | marks.FETCH_CPU)
            if queued is not None:
                # Items and collating waited for a core in proportion to what they used of it.
                waited = (boundary.attempt(queue.waited_ns) or queued) - queued
                append(waited * own // max(1, used) << 8 | marks.FETCH_QUEUED)
        return batch

    return fetched


class _ListenedCollate:
    """Marks collate inside one fetch; stands on the fetcher meanwhile, the loader's own collate_fn is untouched."""

    def __init__(self, original: Callable[..., Any], session: Session, clocked: bool) -> None:
        self.original = original
        self._append, self._origin = session.append, session.origin
        self._clocked = clocked
        self.cpu_ns = 0
        self.items = 1

    def __call__(self, items: Any) -> Any:
        self.items = len(items) if isinstance(items, Sequence) else 1
        self._append((now() - self._origin) << 8 | _COLLATE_IN)
        started = _cpu() if self._clocked else 0
        try:
            return self.original(items)
        finally:
            if self._clocked:
                self.cpu_ns += _cpu() - started
            self._append((now() - self._origin) << 8 | _COLLATE_OUT)


def _around_worker(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def looped(*args: Any, **kwargs: Any) -> None:
        boundary.attempt(end_with_parent)
        session.thread = get_ident()
        session.endings.clear()
        session.facts.clear()
        boundary.attempt(_share_budget, session, inspect.signature(original), args, kwargs)
        boundary.attempt(session.sampler.start, session.thread)
        session.facts["role"] = "worker"
        session.is_worker = True
        session.facts["started_at"] = now() - session.origin
        session.portraits.append(functools.partial(_count_threads, session))
        try:
            original(*args, **kwargs)
        finally:
            session.end()

    return looped


def _share_budget(
    session: Session, loop: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """A loader's workers together may write as much as one could alone."""
    workers = loop.bind(*args, **kwargs).arguments.get("num_workers", 1)
    session.ring.reopen(session.ring.path, WORKERS_BYTES // max(1, workers))


def _count_threads(session: Session) -> None:
    """Threads that compute in this worker: those that no one started from Python, and its own."""
    try:
        native = sum(1 for _ in Path("/proc/self/task").iterdir()) - threading.active_count()
    except OSError:
        native = torch.get_num_threads() - 1
    session.note("threads", 1 + max(0, native))
