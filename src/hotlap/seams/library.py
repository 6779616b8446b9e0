"""Plans for people who prefer code: `hotlap.apply(plan, model=..., optimizer=..., loader=...)`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader

from hotlap import integrations
from hotlap.discover import units
from hotlap.facts.plan import Plan
from hotlap.plan.catalogue import all_knobs, checked
from hotlap.plan.file import read_plan
from hotlap.plan.record import told
from hotlap.ports.integration import Integration
from hotlap.ports.target import Seam
from hotlap.probe import boundary
from hotlap.probe.feed import arguments_of
from hotlap.seams import installed
from hotlap.seams.fitter import Fitted, Fitter


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
    return type(loader)(**arguments_of(loader))


# What the callbacks of frameworks share: a plan that comes with the callback and goes when training ends.


class Applying:
    """Applies the plan as soon as it is built, which is before the trainer that it is given to.

    A copy in another process (`ddp_spawn`) applies the plan there.
    """

    def __init__(self, plan: Plan | Mapping[str, Any] | str | Path) -> None:
        self._plan = plan
        self._told = False
        self.applied: Applied = apply(plan)

    def tell(self, rank: int) -> None:
        """Once, after the first step: by then everything has been asked for."""
        if not self._told and rank == 0:
            print(self.applied, file=sys.stderr, flush=True)
        self._told = True

    def __getstate__(self) -> dict[str, Any]:
        return {"_plan": self._plan}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_plan"])  # type: ignore[misc]


class PlanCallback:
    """What callbacks of frameworks have in common: the plan begins where the callback is built."""

    def __init__(self, plan: Plan | Mapping[str, Any] | str | Path) -> None:
        self._plan = Applying(plan)

    @property
    def applied(self) -> Applied:
        """What became of the plan."""
        return self._plan.applied
