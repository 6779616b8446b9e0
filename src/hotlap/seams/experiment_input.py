"""Input of experiments: the script's own items through a loader that is built again, with other arguments.

The loader that feeds training is built once for each variant, from the script's dataset, sampler and collate, and
begins again when its sampler ends. The script's own loader rests meanwhile; its iterator hands out what comes from
here.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Subset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

from hotlap.facts.rewrite import is_rewrite
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Loader
from hotlap.probe.feed import Feed, whole_signature
from hotlap.seams import loader_look
from hotlap.seams.loader import SEEN
from hotlap.seams.loader_look import WorkerEffects

_LONGEST_WAIT_S = 60.0  # for a batch: a worker that hangs ends its variant
# Settings that read items before the first batch: a part of the dataset shows what they bring. Batches at the least.
_READ_AHEAD = {"cache-dataset": 4, "bucketing": 20}
_READ_S = 1.5
_PREFETCH = 2  # torch's own


class BatchSource:
    """Where the batches of the present variant come from. Batches of the script itself come first: one is needed to
    know its loader."""

    def __init__(self, feed: Feed, knobs: Mapping[str, Knob]) -> None:
        self._feed = feed
        self._knobs = knobs
        self._opened: dict[str, _Opened] = {}
        self._seen: Callable[[], WorkerEffects] | None = (
            None  # what workers would change of the script's batches
        )
        self.failed = ""  # why the present variant gives no more batches
        self.numerics: dict[str, str] = {}
        self.start_ns = 0  # of the present variant's workers

    @property
    def obstacle(self) -> str:
        """Why no other loader can take the place of the script's; empty where one can."""
        own = self._feed.only_arguments()
        if own is None:
            return "the script's batches do not come from one DataLoader"
        return (
            "its IterableDataset cannot be read twice" if isinstance(own["dataset"], IterableDataset) else ""
        )

    def refuse_spawned(self) -> None:
        """Workers that import the script anew know nothing of functions that were switched here."""
        own = self._feed.only_arguments()
        if own is None or not own.get("num_workers"):
            return
        asked = own.get("multiprocessing_context")
        method = asked if isinstance(asked, str) else getattr(asked, "_name", None)
        if (method or multiprocessing.get_start_method()) != "fork":
            raise CannotActError("its workers are not forked: only a fresh process can show it")

    def use(self, settings: Mapping[str, Any], rewritten: tuple[str, ...] = ()) -> int:
        """Take batches from now on as these settings make them; returns how many are ready ahead of their turn.

        Raises CannotActError where a setting cannot act here. `rewritten` are rewrites that workers start with.
        """
        self.failed, self.numerics, self.start_ns = "", {}, 0
        if self.obstacle:
            if settings:
                raise CannotActError(self.obstacle)
            return 0
        name = _name(settings, rewritten)
        if name not in self._opened:
            self._opened[name] = self._open(settings)
        found = self._opened[name]
        self.numerics, self.start_ns = found.numerics, found.start_ns
        self._feed.replays = True
        self._feed.source = functools.partial(self._next, found)
        return found.ahead

    def replay(self) -> None:
        """The last batch again and again."""
        if self.obstacle:
            raise CannotActError(self.obstacle)
        self.failed, self.numerics, self.start_ns = "", {}, 0
        self._feed.replays, self._feed.source = True, None

    def close(self) -> None:
        """End all workers; batches are the script's own again."""
        self._feed.forget()
        for each in self._opened.values():
            each.close()
        self._opened.clear()

    def drop(self, settings: Mapping[str, Any]) -> None:
        """A variant that takes no more turns: its workers end."""
        of_loader = {key: value for key, value in settings.items() if key in self._knobs}
        rewritten = tuple(sorted(key for key in settings if is_rewrite(key)))
        found = self._opened.pop(_name(of_loader, rewritten), None) if of_loader or rewritten else None
        if found is not None:
            found.close()

    def _next(self, opened: _Opened) -> Any:
        if self.failed:
            return None
        try:
            return next(opened.iterator)
        except Exception as error:  # the script's own code may raise anything, also in a worker
            self.failed = f"{type(error).__name__} while a batch was made"
            return None

    def _open(self, settings: Mapping[str, Any]) -> _Opened:
        found = self._feed.only_arguments()
        assert found is not None
        own = whole_signature(found)
        if self._seen is None:
            self._seen = functools.cache(functools.partial(loader_look.seen, dict(own)))
        part = _part_to_read(own, settings)
        if part:
            own["dataset"] = Subset(own["dataset"], range(part))
        target = _target(own, self._seen)
        numerics = {}
        for knob, setting in self._in_order(settings):
            try:
                asked = knob.numerics_at(target, setting)
                knob.apply(target, setting)
                acting = knob.numerics_at(target, setting)  # some of it shows only once the setting acts
                order: list[Numerics] = list(Numerics)
                numerics[knob.id] = order[max(order.index(asked), order.index(acting))].value
            except NotMineError as refusal:
                raise CannotActError(str(refusal) or "the loader is not one that it acts on") from refusal
        return _Opened(_built(target, part), numerics)

    def _in_order(self, settings: Mapping[str, Any]) -> list[tuple[Knob, Any]]:
        chosen = [(self._knobs[key], value) for key, value in sorted(settings.items())]
        return sorted(chosen, key=lambda each: bool(each[0].follows & settings.keys()))


def _name(settings: Mapping[str, Any], rewritten: tuple[str, ...]) -> str:
    return repr((sorted(settings.items()), rewritten))


class _Opened:
    """An iterator that never ends, and how many batches its workers make ahead."""

    def __init__(self, loader: Any, numerics: dict[str, str]) -> None:
        self.numerics = numerics
        self.ahead: int = loader.num_workers * (loader.prefetch_factor or _PREFETCH)
        # Not through `iter`, so that nobody takes it for a loader of the script.
        kind: Any = _MultiProcessingDataLoaderIter if loader.num_workers else _SingleProcessDataLoaderIter
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's opinion on the number of workers is being tested
            began = time.perf_counter_ns()
            opened = kind(loader)
            first = next(opened)  # workers are ready when it has come
        starts = loader.num_workers and not loader.persistent_workers
        self.start_ns: int = time.perf_counter_ns() - began if starts else 0
        self._workers = opened
        self.iterator: Iterator[Any] = itertools.chain([first], opened)

    def close(self) -> None:
        end: Callable[[], None] | None = getattr(self._workers, "_shutdown_workers", None)
        if end is not None:
            end()
        self.iterator = iter(())


class _Forever:
    """A sampler that begins again when it ends; with `part`, its indices fall on the first items."""

    def __init__(self, sampler: Any, part: int) -> None:
        self._sampler, self._part = sampler, part

    def __iter__(self) -> Iterator[Any]:
        while True:
            for index in self._sampler:
                yield self._folded(index) if self._part else index

    def _folded(self, index: Any) -> Any:
        return [each % self._part for each in index] if isinstance(index, list) else index % self._part


def _target(arguments: dict[str, Any], seen: Callable[[], WorkerEffects]) -> Loader:
    dataset = arguments["dataset"]
    target = Loader(
        arguments,
        draws=lambda: seen().items,
        lazy=lambda: seen().sampler,
        unproved=lambda: seen().unproved,
        lengths=functools.cache(lambda most: loader_look.lengths(dataset, most)),
        training=True,
    )
    target.context[SEEN] = seen
    return target


def _part_to_read(arguments: dict[str, Any], settings: Mapping[str, Any]) -> int:
    """Items that are read within the time, or are needed at the least; 0: no setting reads ahead, or the dataset has
    no more."""
    batches = max((_READ_AHEAD.get(key, 0) for key in settings), default=0)
    if not batches:
        return 0
    dataset = arguments["dataset"]
    count, batch = len(dataset), arguments["batch_size"] or 1
    started = time.perf_counter()
    for index in itertools.islice(range(count), 2):
        dataset[index]
    each_s = (time.perf_counter() - started) / 2
    part = max(batches * batch, int(_READ_S / max(each_s, 1e-7)))
    return part if part < count else 0


def _built(target: Loader, part: int) -> Any:
    """Past the constructor that others listen to."""
    arguments = dict(target.arguments)
    if target.setups:
        arguments["worker_init_fn"] = _Prepared(tuple(target.setups), arguments["worker_init_fn"])
    if arguments["num_workers"]:
        arguments["timeout"] = arguments["timeout"] or _LONGEST_WAIT_S
    else:
        arguments |= {"prefetch_factor": None, "persistent_workers": False, "timeout": 0}
        arguments["multiprocessing_context"] = None
    loader: Any = DataLoader.__new__(DataLoader)
    inspect.unwrap(DataLoader.__init__)(loader, **arguments)
    for act in target.after:
        act(loader)
    name = "batch_sampler" if loader._auto_collation else "sampler"
    loader.__dict__[name] = _Forever(getattr(loader, name), part)
    return loader


class _Prepared:
    """Called first in a worker: what knobs set up there, then the script's own function."""

    def __init__(self, setups: tuple[Callable[[], None], ...], own: Callable[[int], None] | None) -> None:
        self._setups, self._own = setups, own

    def __call__(self, worker: int) -> None:
        for each in self._setups:
            each()
        if self._own is not None:
            self._own(worker)
