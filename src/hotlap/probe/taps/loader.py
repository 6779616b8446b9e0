"""Listens at DataLoader: how long the script waits for a batch, how large it is, and when workers are started."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotlap.probe import boundary, marks
from hotlap.probe.batch import BatchReader
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.portrait import loader_portrait, place_of_caller
from hotlap.probe.repeat import describe_items
from hotlap.probe.session import Session, now
from hotlap.probe.workers import Generations
from hotlap.sameness.content import bytes_of

_ENTER, _LEAVE = marks.enter(Kind.DATA), marks.leave(Kind.DATA)
_MOST_LOADERS = 64


class LoaderTap:
    """Knows the loaders of this process by number."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.iterators: weakref.WeakKeyDictionary[Any, BatchReader] = weakref.WeakKeyDictionary()
        self.portraits: list[dict[str, Any]] = []
        self.starts: dict[int, Generations] = {}  # of workers
        self._first_looks: list[dict[str, Any]] = []  # as they were built, before anything was counted
        self.latest = -1  # number of the loader that gave the last batch
        self._recent: Callable[[], Any] = lambda: None
        self._recent_reader: BatchReader | None = None

    def number(self, loader: Any, place: list[Any] | None = None) -> int:
        known = self.numbers.get(loader)
        if known is None:
            portrait = (boundary.attempt(loader_portrait, loader) or {}) | {"place": place}
            known = self.numbers[loader] = self._successor_of(portrait)
            if known == len(self.portraits) < _MOST_LOADERS:
                self.portraits.append(portrait)
                self._first_looks.append(dict(portrait))
        return known

    def _successor_of(self, portrait: dict[str, Any]) -> int:
        """A loader that is built anew each epoch is one loader: it takes the number of an equal one that has gone."""
        alive = set(self.numbers.values())
        gone = (
            number
            for number, look in enumerate(self._first_looks)
            if number not in alive and look == portrait
        )
        return next(gone, len(self.portraits))

    def started(self, loader: Any, iterator: Any) -> None:
        number = self.number(loader)
        if get_ident() == self.session.thread:
            self.session.fact(number, marks.LOADER_ID)
        self.iterators[iterator] = BatchReader(number, boundary.attempt(_whole_batch, loader))
        self._recent = lambda: None  # a persistent iterator begins again
        if self.session.feed is not None:
            self.session.feed.opened(number, loader)
        if number < len(self.portraits):
            portrait = self.portraits[number]
            portrait["epochs"] = portrait.get("epochs", 0) + 1
            workers = getattr(iterator, "_workers", None) or ()
            self._began(number, {str(worker.pid): index for index, worker in enumerate(workers)})

    def _began(self, number: int, pids: dict[str, int]) -> None:
        starts = self.starts.setdefault(number, Generations(self.session.folder))
        starts.begin(pids)
        self.portraits[number] |= {"worker_pids": starts.pids, "worker_starts": starts.started}

    def delivered(self, iterator: Any, batch: Any) -> None:
        reader = self._reader(iterator)
        if reader is None:
            return
        self.latest = reader.loader
        if not reader.batches:
            self._met(reader.loader, batch)
        if self.session.feed is not None:
            self.session.feed.gave(reader.loader, batch)
        reader.read(batch, self.session.append)

    def _reader(self, iterator: Any) -> BatchReader | None:
        if self._recent() is not iterator:  # asking the dictionary is dearer
            self._recent, self._recent_reader = weakref.ref(iterator), self.iterators.get(iterator)
        return self._recent_reader

    def exhausted(self, iterator: Any) -> None:
        reader = self.iterators.get(iterator)
        if reader is not None:
            self.session.fact(reader.loader, marks.EXHAUSTED)

    def again(self, iterator: Any) -> Any:
        """A batch that was given before, while input is free; else None."""
        reader, feed = self.iterators.get(iterator), self.session.feed
        return feed.again(reader.loader) if feed is not None and reader is not None else None

    def _met(self, number: int, batch: Any) -> None:
        if number < len(self.portraits) and "batch_bytes" not in self.portraits[number]:
            self.portraits[number]["batch_bytes"] = boundary.attempt(bytes_of, batch)

    def describe_items(self) -> None:
        """Of the loader that gave the last batch: a step has just ended, so it feeds the training."""
        for loader, number in list(self.numbers.items()):
            if number == self.latest and number < len(self.portraits):
                portrait = self.portraits[number]
                if not portrait.get("iterable"):
                    portrait.update(describe_items(loader.dataset))


def _whole_batch(loader: Any) -> int | None:
    """Samples of its first batch, where the loader itself puts batches together."""
    size: int | None = getattr(loader, "batch_size", None)
    if size is None or not hasattr(loader.sampler, "__len__"):
        return size
    return min(size, len(loader.sampler))


def install(session: Session, epilogue: Epilogue) -> None:
    tap = LoaderTap(session)
    session.facts["loaders"] = tap.portraits
    epilogue.last_acts.append(tap.describe_items)
    session.wrap(DataLoader, "__init__", functools.partial(_around_init, tap))
    session.wrap(DataLoader, "__iter__", functools.partial(_around_iter, tap))
    session.wrap(_BaseDataLoaderIter, "__next__", functools.partial(_around_next, tap))


def _around_init(tap: LoaderTap, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        boundary.attempt(_note_place, tap, self, sys._getframe(1))

    return built


def _note_place(tap: LoaderTap, loader: Any, frame: Any) -> None:
    tap.number(loader, boundary.attempt(place_of_caller, frame))


def _around_iter(tap: LoaderTap, original: Callable[..., Any]) -> Callable[..., Any]:
    timed = tap.session.timed(Kind.LOADER)(original)

    @functools.wraps(original)
    def begun(self: Any) -> Any:
        iterator = timed(self)
        boundary.attempt(tap.started, self, iterator)
        return iterator

    return begun


def _around_next(tap: LoaderTap, original: Callable[..., Any]) -> Callable[..., Any]:
    session = tap.session
    append, origin = session.append, session.origin
    is_compiling = torch.compiler.is_compiling
    sampler = session.sampler

    @functools.wraps(original)
    def waited(self: Any) -> Any:
        if is_compiling() or get_ident() != session.thread:
            return original(self)
        if sampler.idle:
            session.start()
        if session.feed is not None and (batch := boundary.attempt(tap.again, self)) is not None:
            return batch
        append((now() - origin) << 8 | _ENTER)
        try:
            batch = original(self)
        except BaseException as end:
            append((now() - origin) << 8 | _LEAVE)
            if isinstance(end, StopIteration):
                boundary.attempt(tap.exhausted, self)
            raise
        append((now() - origin) << 8 | _LEAVE)
        boundary.attempt(tap.delivered, self, batch)
        return batch

    return waited
