"""An integration teaches the probe the stages of one framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Protocol

from hotlap.facts.timeline import Stage
from hotlap.ports.target import Trainer, Undo


class Stager(Protocol):
    """What the probe offers to an integration."""

    def stage(self, owner: Any, name: str, stage: Stage, *, lasting: bool = True) -> None:
        """From now on, time spent in `owner.name(...)` counts as `stage`.

        While experiments run, logging and saving that is `lasting` is left out: what it leaves outlives the process.
        """

    def note(self, key: str, value: Any) -> None:
        """Record a fact of the run, such as the framework's name."""

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace `owner.name` by `around(original)`; undone when the probe detaches."""


class Seams(Protocol):
    """What a plan offers to an integration while a job runs under it."""

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> Undo:
        """Replace `owner.name` by `around(original)`."""

    def trainer(self, trainer: Trainer) -> None:
        """A trainer is about to be built: settings of the plan that it takes are given to it and to nobody else."""


class Integration(ABC):
    """One framework. `modules` are import names; `attach` is called right after each of them was imported.

    Attribute names that a version of the framework does not have are passed over by `Stager.stage`.
    """

    id: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]

    @abstractmethod
    def attach(self, module: ModuleType, stager: Stager) -> None:
        """Name the stages of the framework that live in `module`."""

    def offer(self, module: ModuleType, seams: Seams) -> None:  # noqa: B027 a framework may have nothing to offer
        """Give the settings of a plan to the framework's own options, where a trainer of `module` is built."""
