"""One file per framework: which of its functions are which stage, and which of its options are which knob's.

What they share is here.
"""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from itertools import islice
from types import ModuleType
from typing import Any

from hotlap.facts.timeline import Stage
from hotlap.ports.integration import Stager
from hotlap.ports.target import Undo
from hotlap.probe import boundary

Points = Mapping[str, Stage]
"""`Class.method` or `function`, as found in one module, and the stage that its time counts as."""


def stage_points(stager: Stager, module: ModuleType, points: Points, in_memory: Collection[str] = ()) -> None:
    """Stage every point; a class that this version of the framework does not have is passed over.

    What those `in_memory` keep is read by the framework itself, so they are never left out.
    """
    for path, stage in points.items():
        owner, _, name = path.rpartition(".")
        where = getattr(module, owner, None) if owner else module
        if where is not None:
            stager.stage(where, name, stage, lasting=path not in in_memory)


def before(first: Callable[[Any], object]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An `around` for `Stager.wrap`: the method itself, with `first(self)` called ahead of it."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            first(self)
            return original(self, *args, **kwargs)

        return method

    return around


def built_here(stager: Stager) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An `around` for a constructor whose arguments set the cadences: notes the user's line that calls it."""

    def note(_: Any) -> None:
        from hotlap.probe.portrait import place_of_caller  # needs torch, which is there by now

        if place := place_of_caller(sys._getframe(1)):
            stager.note("trainer_place", place)

    return before(boundary.contained(note))


def following(look: Callable[[Any, Any], object]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """An `around` for a method that builds: the method itself, with `look(self, built)` called after it."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def build(self: Any, *args: Any, **kwargs: Any) -> Any:
            built = original(self, *args, **kwargs)
            boundary.attempt(look, self, built)
            return built

        return build

    return around


class Overrides:
    """Stages the methods that users' subclasses define anew, and so hide the staged ones of the framework.

    Subclasses are known only once an object of theirs is at work, so this is asked when training starts.
    """

    def __init__(self, points: Points, in_memory: Collection[str] = ()) -> None:
        self._points, self._in_memory = points, in_memory
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
                stager.stage(owner, name, stage, lasting=name not in self._in_memory)


class Arguments(dict[str, Any]):
    """Of a constructor, by name. When it has run they are let go, so that no undo keeps a model or a dataset."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        super().__init__(given)
        self.before: dict[str, Any] = {}  # what stood where an option was set

    def let_go(self) -> None:
        self.clear()
        self.before.clear()


def constructing(offer: Callable[[Any, Arguments], object]) -> Callable[..., Any]:
    """An `around` for a constructor: `offer(self, arguments)` may change its arguments, by name, before it runs."""

    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @wraps(original)
        def built(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                bound = signature.bind_partial(self, *args, **kwargs)
            except TypeError:  # the constructor says it better
                return original(self, *args, **kwargs)
            arguments = bound.arguments = Arguments(bound.arguments)
            boundary.attempt(offer, self, arguments)
            args, kwargs = bound.args, bound.kwargs
            arguments.let_go()
            return original(*args, **kwargs)

        return built

    return around


def option(arguments: Arguments, name: str, value: Any) -> Undo:
    """Set an argument of a constructor; undone before it runs, it is as if never set."""
    if name in arguments:
        arguments.before.setdefault(name, arguments[name])
    arguments[name] = value

    def undo() -> None:
        arguments.pop(name, None)
        if name in arguments.before:
            arguments[name] = arguments.before.pop(name)

    return undo


def attributes(owner: Any, **values: Any) -> Undo:
    """Set attributes of an object that the framework reads as it goes. The undo does not keep it alive."""
    before = {name: getattr(owner, name) for name in values}
    held = weakref.ref(owner)
    weakref.finalize(owner, before.clear).atexit = False
    for name, value in values.items():
        setattr(owner, name, value)

    def undo() -> None:
        left = held()
        for name, value in before.items() if left is not None else ():
            setattr(left, name, value)

    return undo


class Met:
    """Objects that were met already; of one that is gone nothing is kept."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[Any]] = {}

    def first_time(self, thing: Any) -> bool:
        known = self._known.get(id(thing))
        if known is not None and known() is thing:
            return False
        self._known[id(thing)] = weakref.ref(thing)
        return True


class FirstBatches:
    """A loader that ends early."""

    def __init__(self, loader: Any, batches: int) -> None:
        self._loader = loader
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return islice(self._loader, self._batches)

    def __len__(self) -> int:
        return self._batches

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
