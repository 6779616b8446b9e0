"""Listens where items are made: fetch and collate, in DataLoader's workers and in the main process alike."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch.utils.data._utils import fetch, worker

from hotlap.probe import boundary, marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now

_cpu = time.thread_time_ns


def install(session: Session) -> None:
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        session.wrap(fetcher, "fetch", functools.partial(_around_fetch, session))
    session.wrap(worker, "_worker_loop", functools.partial(_around_worker, session))


def _around_fetch(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin = session.append, session.origin
    enter, leave = marks.enter(Kind.FETCH), marks.leave(Kind.FETCH)
    listening = _Collate(session)

    @functools.wraps(original)
    def fetched(self: Any, index: Any) -> Any:
        if type(self.collate_fn) is not _ListenedCollate:
            self.collate_fn = listening.to(self.collate_fn)
        count = len(index) if isinstance(index, list | tuple) else 1
        append((now() - origin) << 8 | enter)
        started = _cpu()
        try:
            return original(self, index)
        finally:
            used = _cpu() - started
            append((now() - origin) << 8 | leave)
            append(count << 8 | marks.ITEMS)
            append(used << 8 | marks.FETCH_CPU)

    return fetched


class _Collate:
    def __init__(self, session: Session) -> None:
        self._timed = session.timed(Kind.COLLATE)

    def to(self, collate: Callable[..., Any]) -> _ListenedCollate:
        return _ListenedCollate(self._timed(collate))


class _ListenedCollate:
    """Marks collate inside a fetch; lives on the fetcher alone, the loader's own collate_fn is untouched."""

    def __init__(self, timed: Callable[..., Any]) -> None:
        self._timed = timed

    def __call__(self, items: Any) -> Any:
        return self._timed(items)


def _around_worker(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def looped(*args: Any, **kwargs: Any) -> None:
        session.thread = get_ident()
        boundary.attempt(session.sampler.start, session.thread)
        session.facts["role"] = "worker"
        session.facts["started_at"] = now() - session.origin
        try:
            original(*args, **kwargs)
        finally:
            session.end()

    return looped
