"""What is known of the loaders that were built under a plan, by loader."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from hotlap.probe import boundary
from hotlap.seams.fitter import Fitted, Fitter
from hotlap.seams.loader_traces import traces

_OF_WORKERS = ("num_workers", "prefetch_factor", "persistent_workers")


@dataclass
class _Built:
    own: dict[str, Any]  # of the arguments, those that the plan changed, as the script gave them
    fitted: Sequence[Fitted] = ()
    setups: tuple[Callable[[], None], ...] = ()
    traces: dict[str, Any] = field(default_factory=dict)  # of the dataset, when its workers were started


class Loaders:
    """Loaders keep their own arguments, so that what does not work can be taken back."""

    def __init__(self, fitter: Fitter) -> None:
        self._fitter = fitter
        self._known: weakref.WeakKeyDictionary[Any, _Built] = weakref.WeakKeyDictionary()
        self._of_dataset: dict[int, tuple[Callable[[], Any], dict[str, Any], dict[str, Any]]] = {}

    def keep(
        self,
        loader: Any,
        own: dict[str, Any],
        fitted: Sequence[Fitted],
        setups: Sequence[Callable[[], None]],
    ) -> None:
        own = self._inherited(loader) | own
        self._known[loader] = _Built(own, tuple(fitted), tuple(setups))
        put = {name: getattr(loader, name) for name in _OF_WORKERS}
        self._of_dataset[id(loader.dataset)] = _weakly(loader.dataset), own, put
        if "persistent_workers" in own:
            self._look(loader)

    def _inherited(self, loader: Any) -> dict[str, Any]:
        """A framework that builds a loader anew gives it the arguments of the first, which the plan has changed."""
        dataset, own, put = self._of_dataset.get(id(loader.dataset), (_nothing, {}, {}))
        if dataset() is not loader.dataset:
            return {}
        return {name: own[name] for name in _OF_WORKERS if name in own and getattr(loader, name) == put[name]}

    def setups(self, loader: Any) -> tuple[Callable[[], None], ...]:
        known = self._known.get(loader)
        return known.setups if known is not None else ()

    def changed_workers(self, loader: Any) -> bool:
        known = self._known.get(loader)
        return known is not None and any(name in known.own for name in _OF_WORKERS)

    def take_back(self, loader: Any, reason: str) -> None:
        """Its workers are the script's own again."""
        known = self._known[loader]
        for name in _OF_WORKERS:
            if name in known.own:
                loader.__dict__[name] = known.own.pop(name)
        if not loader.num_workers:
            loader.prefetch_factor = None
        elif loader.prefetch_factor is None:
            loader.prefetch_factor = 2  # as the constructor does
        names = {name.replace("_", "-") for name in _OF_WORKERS}
        for each in known.fitted:
            if each.knob in names:
                self._fitter.record(Fitted(each.knob, each.setting, False, each.place, reason))

    def stale(self, loader: Any) -> bool:
        """Whether workers that the plan made persist do not know what the script has done to its dataset since."""
        known = self._known.get(loader)
        if known is None or "persistent_workers" not in known.own:
            return False
        before, now = known.traces, boundary.attempt(traces, loader.dataset)
        known.traces = now or {}
        if now is not None and now == before:
            return False
        changed = sorted(
            name for name in {*before, *known.traces} if before.get(name) != known.traces.get(name)
        )
        what = f"the script changes its dataset between epochs ({', '.join(changed[:3])})"
        for each in known.fitted:
            if each.knob == "persistent-workers":
                reason = f"{what}, so its workers are started anew"
                self._fitter.record(Fitted(each.knob, each.setting, False, each.place, reason))
        return True

    def draw_as_if_started(self, loader: Any, iterator: Any) -> None:
        """Starting workers draws a seed: those that the plan made persist must not shift the script's numbers."""
        known = self._known.get(loader)
        if known is not None and "persistent_workers" in known.own:
            iter(iterator._index_sampler)  # some samplers draw as soon as they are asked
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)

    def _look(self, loader: Any) -> None:
        self._known[loader].traces = boundary.attempt(traces, loader.dataset) or {}


def _nothing() -> None:
    return None


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a list, say: then nothing is inherited
        return _nothing
