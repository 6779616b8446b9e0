"""An integration teaches the probe the stages of one framework."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import ModuleType
from typing import Any, ClassVar, Protocol

from hotlap.facts.timeline import Stage


class Stager(Protocol):
    """What the probe offers to an integration."""

    def stage(self, owner: Any, name: str, stage: Stage) -> None:
        """From now on, time spent in `owner.name(...)` counts as `stage`."""

    def note(self, key: str, value: Any) -> None:
        """Record a fact of the run, such as the framework's name."""

    def wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        """Replace `owner.name` by `around(original)`; undone when the probe detaches."""


class Integration(ABC):
    """One framework. `modules` are import names; `attach` is called right after each of them was imported.

    Attribute names that a version of the framework does not have are passed over by `Stager.stage`.
    """

    id: ClassVar[str]
    modules: ClassVar[tuple[str, ...]]

    @abstractmethod
    def attach(self, module: ModuleType, stager: Stager) -> None:
        """Name the stages of the framework that live in `module`."""
