"""A knob is one reversible change that may save time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline


class Seam(StrEnum):
    """A place in a running script where hotlap may act."""

    PROCESS = "process"
    LOADER = "loader"
    MODEL = "model"
    OPTIMIZER = "optimizer"
    STEP = "step"
    TRAINER = "trainer"


class Numerics(StrEnum):
    """What a knob does to the numbers; the guard reads this."""

    BITWISE = "bitwise"
    ROUNDING = "rounding"
    STATISTICAL = "statistical"


Undo = Callable[[], None]


class Knob(ABC):
    """One change. The module's docstring is its card: What it does, When it helps, What it costs, Numerics."""

    id: ClassVar[str]
    relieves: ClassVar[frozenset[Cause]]
    seam: ClassVar[Seam]
    numerics: ClassVar[Numerics]

    @abstractmethod
    def settings(self, host: Host, timeline: Timeline) -> tuple[Any, ...]:
        """Candidate values on this host; () where it cannot help."""

    @abstractmethod
    def ceiling(self, timeline: Timeline, host: Host) -> float:
        """The most it could save, as a share of the step."""

    @abstractmethod
    def apply(self, target: Any, setting: Any) -> Undo:
        """Make the change and return its undo."""
