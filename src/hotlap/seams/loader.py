"""The loader seam: the arguments of every DataLoader that the script or its framework builds.

Frameworks build loaders anew around the script's (Accelerate, Hugging Face Trainer, Lightning with ranks): each knob
sees that its setting is there already. In a worker process nothing is changed.
"""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter

from hotlap.facts.timeline import Place
from hotlap.ports.target import Loader, Seam
from hotlap.probe import boundary
from hotlap.probe.portrait import place_of_caller
from hotlap.seams import loader_items, loader_skip
from hotlap.seams.fitter import Fitted, Fitter
from hotlap.seams.loader_built import Loaders
from hotlap.seams.loader_iterator import Given
from hotlap.seams.loader_ladder import PATIENCE_S, Ladder
from hotlap.seams.loader_role import feeds_training
from hotlap.seams.record import StepDown

SKIP_BAD = "skip_bad_samples"


def install(fitter: Fitter, patience_s: float = PATIENCE_S) -> None:
    """`patience_s`: how long workers that give nothing are waited for before they are replaced."""
    loaders = Loaders(fitter)
    ladder = Ladder(fitter, loaders, patience_s)
    seam = _LoaderSeam(fitter, loaders, ladder)
    fitter.wrap(DataLoader, "__init__", seam.around_init)
    fitter.wrap(DataLoader, "_get_iterator", seam.around_get_iterator)
    ladder.install()
    most = loader_skip.allowed(fitter.options.get(SKIP_BAD))
    if most:
        loader_skip.install(fitter, most)


class _LoaderSeam:
    def __init__(self, fitter: Fitter, loaders: Loaders, ladder: Ladder) -> None:
        self._fitter, self._loaders, self._ladder = fitter, loaders, ladder
        self._signature = inspect.signature(DataLoader.__init__)

    def around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(loader: Any, *args: Any, **kwargs: Any) -> None:
            target = None
            if self._fitter.wants(Seam.LOADER) and get_worker_info() is None:
                target = boundary.attempt(self._target, (loader, *args), kwargs, sys._getframe(1))
            if target is None:
                original(loader, *args, **kwargs)
                return
            own, place = dict(target.arguments), _shown(target.place)
            self._fitter.offer(Seam.LOADER, target, place)
            fitted = self._acting(place)
            if not _same(own, target.arguments):
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

    def around_get_iterator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begun(loader: Any) -> Any:
            if not loader.num_workers:
                return original(loader)
            if self._ladder.rung(loader).alone:
                return _SingleProcessDataLoaderIter(Given(loader, num_workers=0, timeout=0))
            states = _states(loader)
            try:
                with warnings.catch_warnings():
                    if self._loaders.changed_workers(loader):  # then it is no fault of the script's
                        warnings.filterwarnings("ignore", message="Got pickle error")
                    return original(loader)
            except Exception as fault:
                if not self._start_otherwise(loader, fault):
                    raise
                _put_back(loader, states)
                return begun(loader)

        return begun

    def _target(self, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Loader:
        bound = self._signature.bind(
            *args, **kwargs
        )  # a TypeError is the script's own: torch raises it again
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name != "self"}
        dataset, sampler = arguments["dataset"], arguments["batch_sampler"]
        place = boundary.attempt(_place, frame)
        once = functools.cache
        return Loader(
            arguments,
            place,
            draws=once(lambda: loader_items.draws(dataset)),
            lazy=once(lambda: loader_items.lazy(arguments["sampler"] if sampler is None else sampler)),
            shards=once(lambda: loader_items.shards(dataset, arguments["worker_init_fn"])),
            lengths=once(lambda most: loader_items.lengths(dataset, most)),
            iterable=isinstance(dataset, IterableDataset),
            training=feeds_training(arguments, frame, place),
            asking=self._fitter.asking,
        )

    def _finish(self, loader: Any, own: dict[str, Any], target: Loader, fitted: list[Fitted]) -> None:
        if self._fitter.asking:
            return
        changed = {name: value for name, value in own.items() if value is not target.arguments[name]}
        self._loaders.keep(loader, changed, fitted, target.setups)
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
        if self._loaders.changed_workers(loader):
            first = str(fault).partition("\n")[0]
            reason = f"its workers could not be started: {type(fault).__name__}: {first}"
            self._loaders.take_back(loader, reason)
            self._ladder.forget(loader)
            return True
        rung = self._ladder.rung(loader)
        if isinstance(fault, OSError) and not rung.alone:
            rung.alone = True
            reason = f"its workers could not be started: {fault}"
            self._fitter.stepped_down(StepDown("num-workers", rung.workers, 0, reason))
            return True
        return False


def _place(frame: FrameType) -> Place | None:
    found = place_of_caller(frame)
    return Place(*found) if found else None


def _shown(place: Place | None) -> str:
    return f"{Path(place.file).name}:{place.line}" if place is not None else ""


def _same(own: dict[str, Any], now: dict[str, Any]) -> bool:
    return all(own[name] is now[name] for name in own)


def _states(loader: Any) -> tuple[Any, Any]:
    return torch.get_rng_state(), loader.generator.get_state() if loader.generator is not None else None


def _put_back(loader: Any, states: tuple[Any, Any]) -> None:
    torch.set_rng_state(states[0])
    if states[1] is not None:
        loader.generator.set_state(states[1])
