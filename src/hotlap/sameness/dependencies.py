"""What the items of a dataset can depend on, as it was when they were made, and whether it still is so."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from math import inf
from operator import is_
from typing import Any, Protocol, cast

from hotlap.sameness.parts import Bytes, File, Names, Part, ReadValue
from hotlap.sameness.walk import Walk

_QUICK = 128  # parts that are compared at every look, at less than a microsecond each
_AT_ONCE = 16  # parts between two looks at the clock


class Dependencies:
    """Of a dataset, a collate function or a sampler. `unknown` could not be walked: what rests on this is not proved.

    `leave`: attributes that items do not depend on, by the id of their holder and their name. `volatile`: what fetching
    an item changes itself, such as a counter, by the names of `all_changed`; it is not compared. `files`: those that
    items are read from.
    """

    def __init__(
        self,
        *roots: Any,
        leave: Collection[tuple[int, str]] = (),
        volatile: Collection[str] = (),
        files: Iterable[str] = (),
    ) -> None:
        walk = Walk(roots, frozenset(leave))
        parts = [*walk.parts, *(File(path) for path in {**walk.files, **dict.fromkeys(files)})]
        self._parts: list[Part] = []
        for part in (part for part in parts if part.name not in volatile):
            if volatile and isinstance(part, Names):
                part.without(volatile)
            self._parts += part.apart() if isinstance(part, Names) else (part,)
        self.unknown = (*walk.unknown, *(f"fetching an item changes {name}" for name in volatile))
        self.memory = walk.memory
        self._ids = walk.ids
        quick = [part for part in self._parts if part.quick]
        # Attributes first: a list of tensors, each with a version and its bytes, would leave no room for them.
        self._quick = sorted(quick, key=lambda part: isinstance(part, ReadValue | Bytes))[:_QUICK]
        self._glance = Glance(self._quick)
        self.size = len(self._parts)
        self.compared = 0  # parts, over all calls of `changed`
        self._place = 0

    def quickly_changed(self) -> str:
        """As `changed`, of what a glance tells: attributes, small containers, numbers that processes share."""
        if self._glance.same():
            return ""
        if what := _first_changed(self._glance.parts):
            return what
        self._glance.renew()
        return ""

    def changed(self, within_s: float = inf) -> str:
        """What is not as it was; empty where nothing is. It ends after `within_s` and goes on from there the next time,
        so that a large dataset is compared piece by piece; what is quickly told is compared each time."""
        until = time.perf_counter() + within_s if within_s < inf else inf
        if within_s < inf and (what := _first_changed(self._quick)):
            return what
        left = self.size
        while left > 0:
            some = self._parts[self._place : self._place + min(_AT_ONCE, left)]
            if what := _first_changed(some):
                return what
            left -= len(some)
            self.compared += len(some)
            self._place = (self._place + len(some)) % self.size
            if time.perf_counter() > until:
                break
        return ""

    def all_changed(self, within_s: float = inf) -> tuple[str, ...]:
        """All that is not as it was, by the names that `volatile` takes; in rotation like `changed`."""
        until, found = time.perf_counter() + within_s, dict[str, None]()
        for _ in range(self.size):
            part = self._parts[self._place]
            self._place = (self._place + 1) % self.size
            if isinstance(part, Names):
                found |= dict.fromkeys(part.changes())
            elif part.changed():
                found[part.name] = None
            if time.perf_counter() > until:
                break
        return tuple(found)

    def holds(self, value: Any) -> bool:
        """Whether this very object was walked."""
        return id(value) in self._ids

    def shares_memory(self, begin: int, end: int) -> bool:
        """Whether these addresses lie in an array or a tensor that was walked."""
        return any(low < end and begin < high for low, high in self.memory)


def _first_changed(parts: Iterable[Part]) -> str:
    return next((what for part in parts if (what := part.changed())), "")


# A look at what the script may set at any moment, as one expression that is compiled for it.
#
# Attributes are looked up and compared by identity: some 20 ns each, where a call for each part takes ten
# times as long, and after a training step, which leaves little of it in the processor's caches, a hundred
# times.


MOST = 96  # things that are compared: attributes, entries
_RENEWALS = 8  # a script that sets the same numbers anew all the time is looked at part by part
# What raises has changed, or changes right now: a name that has gone, an entry that another thread takes out.
_SOURCE = """
def same({names}):
    try:
        return {terms}
    except Exception:
        return False
"""


class Glanced(Part, Protocol):
    """A part that an expression can tell."""

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        """Expressions that are true where nothing has changed; `hold` gives the name of a value in them."""

    def weigh(self) -> int:
        """How many things they compare; 0 where it takes more than an expression, or is not worth it."""


class Glance:
    """Over those of the parts that fit into it, in their order."""

    def __init__(self, parts: Iterable[Part]) -> None:
        self.parts: list[Any] = []
        weight = 0
        for part in parts:
            own = part.weigh() if hasattr(part, "weigh") else 0
            if own and weight + own <= MOST:
                self.parts.append(part)
                weight += own
        self._left = _RENEWALS
        self.same: Callable[[], bool] = self._compiled()

    def renew(self) -> None:
        """Another object has the value of the one that was seen, and is the one to expect from here on."""
        self._left -= 1
        self.same = self._compiled() if self._left else _never

    def _compiled(self) -> Callable[[], bool]:
        values: dict[int, Any] = {}

        def hold(value: Any) -> str:
            values[id(value)] = value
            return f"v{list(values).index(id(value))}"

        terms = [term for part in self.parts for term in part.glance(hold)]
        names = ", ".join(f"v{number}" for number in range(len(values)))
        scope: dict[str, Any] = {"is_": is_}
        exec(_SOURCE.format(names=names, terms=" and ".join(terms) or True), scope)
        same: Any = scope["same"]
        same.__defaults__ = tuple(values.values())
        return cast(Callable[[], bool], same)


def _never() -> bool:
    return False
