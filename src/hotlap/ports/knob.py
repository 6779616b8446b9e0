"""A knob is one reversible change that may save time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.target import Seam, Undo
from hotlap.ports.values import Values


class Numerics(StrEnum):
    """What a knob does to the numbers, the strictest first; the guard reads this.

    BITWISE: the same bits, proved and watched. AUDITED: watched while it trains, not proved.
    """

    BITWISE = "bitwise"
    AUDITED = "audited"
    ROUNDING = "rounding"
    STATISTICAL = "statistical"


UNCHANGED = (Numerics.BITWISE, Numerics.AUDITED)
"""Classes that must leave every bit as it was, and need no permission."""


class CannotActError(Exception):
    """Raised by `apply` where the script, the host or another setting stands against it; says why in one clause."""


class NotMineError(Exception):
    """Raised by `apply` for a target that the knob does not concern, such as a validation loader: nothing is told."""


class Knob(ABC):
    """One change. The module's docstring is its card: What it does, When it helps, What it costs, Numerics.

    `promise` is what guides usually promise for it, as a range of gains, shown beside what was measured.
    `excludes` are ids of knobs that make no sense in the same plan, `follows` those that act before it at the same
    seam. `absent` says why the knob cannot act where its seam never comes, and what to do instead; empty where the
    seam's own words do. `live`: `apply` and its undo may come between any two steps of a running script, so that a
    search can try it without a process of its own. `shortens`: it leaves out a part of samples. Beside it samples
    are counted, never tokens: by tokens, a sample that is done sooner because less of it is trained on is no gain.
    `builds_s`: seconds that its first trial takes beyond others', which a search must have left to begin it. `brings`
    are settings that a search tries together with it where they are on offer: they cost nothing beside it, and without
    it have little to act on.
    """

    id: ClassVar[str]
    relieves: ClassVar[frozenset[Cause]]
    seam: ClassVar[Seam]
    numerics: ClassVar[Numerics]
    values: ClassVar[Values]
    excludes: ClassVar[frozenset[str]] = frozenset()
    follows: ClassVar[frozenset[str]] = frozenset()
    promise: ClassVar[tuple[float, float] | None] = None
    absent: ClassVar[str] = ""
    live: ClassVar[bool] = False
    shortens: ClassVar[bool] = False
    builds_s: ClassVar[float] = 0.0
    brings: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    @abstractmethod
    def settings(self, host: Host, timeline: Timeline) -> tuple[Any, ...]:
        """Candidate values on this host; () where it cannot help."""

    @abstractmethod
    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """The most it could save, as a share of the step."""

    @abstractmethod
    def apply(self, target: Any, setting: Any) -> Undo:
        """Make the change and return its undo; raises CannotActError. `target` is the one of the knob's seam."""

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        """What it does to the numbers of this very target; a dataset that draws makes num-workers statistical."""
        return self.numerics

    def clash(self, setting: Any, other: str, value: Any) -> str:
        """Why this setting makes no sense beside another knob's value in the same plan; empty where it does."""
        switched_off = (False, "off")
        if other in self.excludes and setting not in switched_off and value not in switched_off:
            return "only one of them can act"
        return ""
