"""Plans for people who prefer code: `hotlap.apply(plan, model=..., optimizer=..., loader=...)`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from hotlap import integrations
from hotlap.discover import units
from hotlap.facts.plan import Plan
from hotlap.ports.integration import Integration
from hotlap.ports.target import Seam
from hotlap.probe import boundary
from hotlap.seams import installed
from hotlap.seams.catalogue import all_knobs
from hotlap.seams.fitter import Fitted, Fitter
from hotlap.seams.plan import checked
from hotlap.seams.plan_file import read_plan
from hotlap.seams.telling import told

_AS_BUILT = (
    "dataset",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


class Applied:
    """A plan at work in this process, until `undo()`."""

    def __init__(self, fitter: Fitter, loader: Any = None) -> None:
        self._fitter = fitter
        self.loader = loader

    @property
    def fitted(self) -> tuple[Fitted, ...]:
        """What became of each setting so far; what nothing has asked for yet is told as not acting."""
        return (*self._fitter.fitted, *self._fitter.unmet())

    def undo(self) -> None:
        """Take everything back; a loader that was built under the plan stays as it is."""
        self._fitter.undo()
        self._fitter.retire()

    def __str__(self) -> str:
        return "\n".join(told([*self.fitted, *self._fitter.step_downs]))


def apply(
    plan: Plan | Mapping[str, Any] | str | Path,
    *,
    model: Any = None,
    optimizer: Any = None,
    loader: Any = None,
) -> Applied:
    """Apply a plan, its file or just settings: to these objects, and to what is built from now on until `undo()`.

    `loader` is the one that feeds training. As a DataLoader cannot be changed, use the one of the result instead.
    """
    knobs = all_knobs()
    fitter = Fitter(_settings(plan, knobs), knobs)
    installed.install(fitter)
    for framework in units(integrations, Integration):  # type: ignore[type-abstract]
        for name in framework.modules:
            if name in sys.modules:
                boundary.attempt(framework.offer, sys.modules[name], fitter)
    fed = loader if loader is None else _rebuilt_train_loader(loader)
    if optimizer is not None:
        fitter.meet(Seam.OPTIMIZER, optimizer)
    if model is not None:
        fitter.meet(Seam.MODEL, model)
    return Applied(fitter, fed)


def _settings(plan: Plan | Mapping[str, Any] | str | Path, knobs: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(plan, str | Path):
        return read_plan(Path(plan), knobs).settings
    return checked(plan.settings if isinstance(plan, Plan) else plan, knobs)


def _rebuilt_train_loader(loader: Any) -> Any:
    """An equal one, built anew under the seam. The function's name tells the seam what the loader is for."""
    if type(loader).__init__ is not DataLoader.__init__:
        return loader  # a constructor of its own, which does not take what it made of its arguments
    arguments = {name: getattr(loader, name) for name in _AS_BUILT if hasattr(loader, name)}
    return type(loader)(**arguments, **_batching(loader))


def _batching(loader: Any) -> dict[str, Any]:
    """The arguments that made the loader's samplers."""
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    cut = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return cut
    sampler, dataset = loader.sampler, loader.dataset
    if type(sampler) is SequentialSampler and sampler.data_source is dataset:
        return cut
    usual = type(sampler) is RandomSampler and sampler.data_source is dataset and not sampler.replacement
    if usual and sampler._num_samples is None and sampler.generator is loader.generator:
        return {**cut, "shuffle": True}
    return {**cut, "sampler": sampler}
