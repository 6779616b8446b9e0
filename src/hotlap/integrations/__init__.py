"""One file per framework: which of its functions are which stage. What they share is here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any

from hotlap.facts.timeline import Stage
from hotlap.ports.integration import Stager

Points = Mapping[str, Stage]
"""`Class.method` or `function`, as found in one module, and the stage that its time counts as."""


def stage_points(stager: Stager, module: ModuleType, points: Points) -> None:
    """Stage every point; a class that this version of the framework does not have is passed over."""
    for path, stage in points.items():
        owner, _, name = path.rpartition(".")
        where = getattr(module, owner, None) if owner else module
        if where is not None:
            stager.stage(where, name, stage)


def before(first: Callable[[Any], object]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An `around` for `Stager.wrap`: the method itself, with `first(self)` called ahead of it."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            first(self)
            return original(self, *args, **kwargs)

        return method

    return around


class Overrides:
    """Stages the methods that users' subclasses define anew, and so hide the staged ones of the framework.

    Subclasses are known only once an object of theirs is at work, so this is asked when training starts.
    """

    def __init__(self, points: Points) -> None:
        self._points = points
        self._seen: set[type] = set()

    def stage(self, stager: Stager, kind: type, base: str) -> None:
        """Stage, once each, what the classes between `kind` and its ancestor named `base` define."""
        ancestry = kind.__mro__
        names = [each.__name__ for each in ancestry]
        above = names.index(base) if base in names else 0
        for owner in ancestry[:above]:
            if owner not in self._seen:
                self._seen.add(owner)
                self._stage_own(stager, owner)

    def _stage_own(self, stager: Stager, owner: type) -> None:
        for name, stage in self._points.items():
            if name in vars(owner):
                stager.stage(owner, name, stage)
