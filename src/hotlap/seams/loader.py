"""The loader seam: the arguments of every DataLoader that the script or its framework builds.

Frameworks build loaders anew around the script's (Accelerate, Hugging Face Trainer, Lightning with ranks): each knob
sees that its setting is there already. In a worker process nothing is changed.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import re
import sys
import warnings
import weakref
from collections.abc import Callable
from itertools import chain, islice
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import (
    DataLoader,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotlap.facts.timeline import SourceLine
from hotlap.plan.record import StepDown
from hotlap.ports.target import Loader, Seam
from hotlap.probe import boundary
from hotlap.probe.portrait import place_of_caller
from hotlap.seams import loader_look, loader_skip
from hotlap.seams.fitter import Fitted, Fitter
from hotlap.seams.loader_built import Loaders
from hotlap.seams.loader_iterator import Given
from hotlap.seams.loader_ladder import PATIENCE_S, LoaderFallbacks, compare_kept

SKIP_BAD = "skip_bad_samples"
SEEN = "seen"  # in the context of a target: what a look aside has found


def install(fitter: Fitter, patience_s: float = PATIENCE_S) -> None:
    """`patience_s`: how long workers that give nothing are waited for before they are replaced."""
    loaders = Loaders(fitter)
    ladder = LoaderFallbacks(fitter, loaders, patience_s)
    seam = _LoaderSeam(fitter, loaders, ladder)
    fitter.wrap(DataLoader, "__init__", seam.around_init)
    fitter.wrap(DataLoader, "_get_iterator", seam.around_get_iterator)
    fitter.wrap(DataLoader, "__iter__", seam.around_iter)
    ladder.install()
    most = loader_skip.allowed(fitter.options.get(SKIP_BAD))
    if most:
        loader_skip.install(fitter, most)


class _LoaderSeam:
    def __init__(self, fitter: Fitter, loaders: Loaders, ladder: LoaderFallbacks) -> None:
        self._fitter, self._loaders, self._ladder = fitter, loaders, ladder
        self._signature = inspect.signature(DataLoader.__init__)

    def around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(loader: Any, *args: Any, **kwargs: Any) -> None:
            found = None
            if self._fitter.wants(Seam.LOADER) and get_worker_info() is None:
                found = boundary.attempt(self._target, (loader, *args), kwargs, sys._getframe(1))
            if found is None:
                original(loader, *args, **kwargs)
                return
            target, given = found
            own, place = dict(target.arguments), _shown(target.place)
            self._fitter.offer(Seam.LOADER, target, place)
            fitted = self._acting(place)
            if not _same(given, target.arguments):
                try:
                    original(loader, **target.arguments)
                except Exception as fault:
                    self._refused(fitted, fault)
                    original(loader, *args, **kwargs)
                    return
            else:
                original(loader, *args, **kwargs)
            boundary.attempt(self._finish, loader, own, target, fitted)

        return built

    def around_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begun(loader: Any) -> Any:
            boundary.attempt(self._loaders.collates_otherwise, loader)
            boundary.attempt(compare_kept, loader.dataset)
            return original(loader)

        return begun

    def around_get_iterator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begun(loader: Any) -> Any:
            if not loader.num_workers:
                return self._without_workers(loader, original(loader))
            if self._ladder.rung(loader).alone:
                return _SingleProcessDataLoaderIter(Given(loader, num_workers=0, timeout=0))
            states = _states(loader)
            try:
                if not self._loaders.changed_workers(loader):
                    return original(loader)
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message="Got pickle error")  # no fault of the script's
                    return original(loader)
            except Exception as fault:
                if not self._start_otherwise(loader, fault):
                    raise
                _put_back(loader, states)
                return begun(loader)

        return begun

    def _without_workers(self, loader: Any, iterator: Any) -> Any:
        """Where it has workers, torch asks a sampler twice, and for its first output at once: as in the script."""
        built = self._loaders.built(loader)
        if built is None or not isinstance(iterator, _SingleProcessDataLoaderIter):
            return iterator
        claims = built.claims
        if claims is not None and claims.own_workers:
            boundary.attempt(self._loaders.begin, built, iterator)
            rest = iter(loader._index_sampler)
            iterator._sampler_iter = chain(list(islice(rest, 1)), rest)
            boundary.attempt(claims.begin_order, rest)
            iterator.__dict__["_hotlap_built"] = built
            weakref.finalize(iterator, boundary.attempt, self._loaders.leave, built)
        return iterator

    def _target(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
    ) -> tuple[Loader, dict[str, Any]]:
        """With the arguments as they were given, where the target has the script's own."""
        bound = self._signature.bind(
            *args, **kwargs
        )  # a TypeError is the script's own: torch raises it again
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if name != "self"}
        arguments = given | self._loaders.before_plan(given)
        dataset, place, once = arguments["dataset"], boundary.attempt(_place, frame), functools.cache
        seen = once(lambda: loader_look.seen({**arguments, "dataset": dataset}))
        target = Loader(
            arguments,
            place,
            draws=lambda: seen().items,
            lazy=lambda: seen().sampler,
            unproved=lambda: seen().unproved,
            shards=once(lambda: loader_look.shards(dataset, arguments["worker_init_fn"])),
            lengths=once(lambda most: loader_look.lengths(dataset, most)),
            iterable=isinstance(dataset, IterableDataset),
            training=feeds_training(arguments, frame, place),
            asking=self._fitter.asking,
            lower=lambda knob, reason: self._fitter.lower(knob, _shown(place), reason),
        )
        target.context[SEEN] = seen
        return target, given

    def _finish(self, loader: Any, own: dict[str, Any], target: Loader, fitted: list[Fitted]) -> None:
        if self._fitter.asking:
            return
        changed = {name: value for name, value in own.items() if value is not target.arguments[name]}
        of_workers = any(name in changed for name in ("num_workers", "persistent_workers", "prefetch_factor"))
        seen = target.context[SEEN]() if of_workers else None
        self._loaders.keep(loader, changed, fitted, target.setups, seen)
        for act in target.after:
            act(loader)

    def _acting(self, place: str) -> list[Fitted]:
        """Of this seam, at this place: what was recorded for an equal loader before counts for this one."""
        ours = {knob.id for knob, _ in self._fitter.wants(Seam.LOADER)}
        return [
            each for each in self._fitter.fitted if each.acts and each.place == place and each.knob in ours
        ]

    def _refused(self, fitted: list[Fitted], fault: Exception) -> None:
        reason = f"DataLoader refused it: {type(fault).__name__}: {fault}"
        for each in fitted:
            self._fitter.record(Fitted(each.knob, each.setting, False, each.place, reason))

    def _start_otherwise(self, loader: Any, fault: Exception) -> bool:
        """Workers that cannot be started: as the script had them, or none where there is no room for their queues."""
        built = self._loaders.built(loader)
        if built is not None and self._loaders.changed_workers(loader):
            first = str(fault).partition("\n")[0]
            reason = f"its workers could not be started: {type(fault).__name__}: {first}"
            self._loaders.take_back(built, reason)
            self._ladder.forget(loader)
            return True
        rung = self._ladder.rung(loader)
        if isinstance(fault, OSError) and not rung.alone:
            rung.alone = True
            reason = f"its workers could not be started: {fault}"
            self._fitter.stepped_down(StepDown("num-workers", rung.workers, 0, reason))
            return True
        return False


def _place(frame: FrameType) -> SourceLine | None:
    found = place_of_caller(frame)
    return SourceLine(*found) if found else None


def _shown(place: SourceLine | None) -> str:
    return f"{Path(place.file).name}:{place.line}" if place is not None else ""


def _same(own: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(own[name] is now[name] for name in own)


def _states(loader: Any) -> tuple[Any, Any]:
    return torch.get_rng_state(), loader.generator.get_state() if loader.generator is not None else None


def _put_back(loader: Any, states: tuple[Any, Any]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        loader.generator.set_state(states[1])


# What a loader is for, judged when it is built.
#
# Later would be too late: scripts ask for `len(loader)` before they train. The name counts most (of the function that
# builds it, then what it is assigned to), as a shuffled validation loader is still one. Without a name, what only
# training does: shuffling, and dropping the last batch. An order that is kept shows nothing.


_TRAINS = re.compile(r"train", re.IGNORECASE)
_OTHER = re.compile(r"val|eval|test|pred|dev|infer|calib", re.IGNORECASE)
_FRAMES = 12  # from DataLoader.__init__ outwards: a framework's hook is not further away
_SHUFFLING = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)


def feeds_training(
    arguments: dict[str, Any], frame: FrameType | None, place: SourceLine | None
) -> bool | None:
    """None where nothing shows it."""
    for name in (*_builders(frame), _assigned(place)):
        if (told := _told(name)) is not None:
            return told
    return True if _shuffles(arguments) or _drops_last(arguments) else None


def _builders(frame: FrameType | None) -> list[str]:
    """Functions on the way to the loader that are called after one: `train_dataloader`, `get_eval_dataloader`."""
    names: list[str] = []
    while frame is not None and len(names) < _FRAMES:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return [name for name in names if "loader" in name.lower()]


def _assigned(place: SourceLine | None) -> str:
    """What stands before the call on its line: `train_loader = `, `"train": `."""
    if place is None:
        return ""
    line = place.code or linecache.getline(place.file, place.line)
    return re.split(r"\w*Loader\(|=[^=]", line, maxsplit=1)[0]


def _told(name: str) -> bool | None:
    trains, other = bool(_TRAINS.search(name)), bool(_OTHER.search(name))
    return None if trains == other else trains


def _shuffles(arguments: dict[str, Any]) -> bool:
    sampler = arguments["sampler"] if arguments["batch_sampler"] is None else arguments["batch_sampler"]
    while sampler is not None:
        if isinstance(sampler, _SHUFFLING) or getattr(sampler, "shuffle", False) is True:
            return True
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return bool(arguments["shuffle"])


def _drops_last(arguments: dict[str, Any]) -> bool:
    batches = arguments["batch_sampler"]
    # A DistributedSampler's drop_last is about ranks of equal length, and validation may want that too.
    return bool(arguments["drop_last"] if batches is None else getattr(batches, "drop_last", False))
