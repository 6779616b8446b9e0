"""Loaders whose iterators go on with other arguments in the middle of an epoch, at the same position of the sampler."""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from copy import copy
from itertools import chain
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from hotlap.ports.target import Loader
from hotlap.seams.loader_iterator import Given

_SWITCHED = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "timeout")
_CONTEXT = "multiprocessing_context"


class LiveLoaders:
    """The loaders that live knobs have met. `change(target)` gives a loader's arguments under the present plan."""

    def __init__(self, change: Callable[[Loader], dict[str, Any]]) -> None:
        self.change = change
        self.version = 0
        self._own: dict[int, tuple[Loader, dict[str, Any]]] = {}
        self._targets: weakref.WeakKeyDictionary[Any, Loader] = weakref.WeakKeyDictionary()

    def listen(self, fitter: Any) -> None:
        fitter.wrap(DataLoader, "_get_iterator", self._around_get_iterator)

    def expect(self, target: Loader) -> None:
        """A loader about to be built: its arguments are still the script's own."""
        if id(target) not in self._own and not target.iterable and target.arguments.get("in_order", True):
            self._own[id(target)] = target, dict(target.arguments)
            target.after.append(functools.partial(self._built, target))

    def own(self, target: Loader) -> Loader:
        """A copy of a target with its own arguments, to change."""
        own = copy(target)
        own.arguments = dict(self._own[id(target)][1])
        return own

    def renew(self) -> None:
        """The plan has changed: iterators go on under the new one with their next batch."""
        self.version += 1

    def given(self, loader: Any, sampler: Any) -> Given:
        """The loader as the present plan would have built it, drawing from `sampler`."""
        arguments = self.change(self._targets[loader])
        changed = {name: arguments[name] for name in _SWITCHED}
        if not changed["num_workers"]:
            changed |= {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
        context = arguments[_CONTEXT] if changed["num_workers"] else None
        return Given(loader, **changed, **{_CONTEXT: context}, _index_sampler=sampler)

    def _built(self, target: Loader, loader: Any) -> None:
        self._targets[loader] = target

    def _around_get_iterator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begun(loader: Any) -> Any:
            return LiveIterator(loader, self) if loader in self._targets else original(loader)

        return begun


class _Drawn:
    """A sampler that remembers what it gave until its batch has arrived."""

    def __init__(self, source: Iterator[Any]) -> None:
        self.source = source
        self.waiting: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        index = next(self.source)
        self.waiting.append(index)
        return index

    def put_back(self) -> None:
        self.source = chain(list(self.waiting), self.source)
        self.waiting.clear()


class LiveIterator(_BaseDataLoaderIter):
    """Stands before torch's own iterator, which it replaces when the plan has changed.

    torch's constructor is not run on it: it has neither workers nor a fetcher, only what `__next__` reads.
    """

    def __init__(self, loader: Any, live: LiveLoaders) -> None:
        self._live, self._loader = live, loader
        self._index_sampler = loader._index_sampler
        self._dataset_kind = loader._dataset_kind
        self._IterableDataset_len_called = None
        self._num_yielded = 0
        self._profile_name = "enumerate(DataLoader)#LiveIterator.__next__"
        self._sampler_iter = self._drawn = _Drawn(iter(loader._index_sampler))
        self._inner: Any = None
        self._renew()

    def _next_data(self) -> Any:
        if self._version != self._live.version:
            self._renew()
        batch = self._inner._next_data()
        self._drawn.waiting.popleft()
        return batch

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Workers that persist begin another epoch."""
        self._num_yielded = 0
        self._drawn.source = iter(loader._index_sampler)
        self._drawn.waiting.clear()
        if hasattr(self._inner, "_workers"):
            self._inner._reset(self._live.given(loader, self._drawn), first_iter)

    def _renew(self) -> None:
        if self._inner is not None and hasattr(self._inner, "_shutdown_workers"):
            self._inner._shutdown_workers()
        self._drawn.put_back()
        self._version = self._live.version
        given = self._live.given(self._loader, self._drawn)
        kind: Any = _MultiProcessingDataLoaderIter if given.num_workers else _SingleProcessDataLoaderIter
        self._inner = kind(given)

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)
