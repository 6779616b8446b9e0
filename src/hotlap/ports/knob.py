"""A knob is one reversible change that may save time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Ending, Stage, Timeline
from hotlap.ports.target import Seam, Trainer, Undo
from hotlap.ports.values import Values


class Numerics(StrEnum):
    """What a knob does to the numbers, the strictest first; the guard reads this.

    BITWISE: the same bits, proved and watched. AUDITED: watched while it trains, not proved.
    """

    BITWISE = "bitwise"
    AUDITED = "audited"
    ROUNDING = "rounding"
    STATISTICAL = "statistical"


WORKERS_RELIEVE = frozenset(
    {
        Cause.INPUT_STARVED,
        Cause.ITEM_CPU_BOUND,
        Cause.ITEM_IO_BOUND,
        Cause.COLLATE_BOUND,
        Cause.WORKERS_TOO_FEW,
        Cause.WORKERS_TOO_MANY,
    }
)
"""Causes that knobs of a loader's workers may act on."""

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


_WITHOUT_TRAINER = ("plain", "accelerate", "fabric")  # the script's own loop decides


class DataKnob(Knob):
    """A knob that could save all the time that steps wait for data, where there is anything to try."""

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.DATA) if self.settings(host, timeline) else 0.0


class TrainerKnob(Knob):
    """The integrations know the option; see `Trainer.takes`. `stage` is what it makes rarer or cheaper."""

    seam = Seam.TRAINER
    stage: ClassVar[Stage]

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return min(1.0, summarise(timeline).share(self.stage))

    def apply(self, target: Trainer, setting: Any) -> Undo:
        take = target.takes.get(self.id)
        if take is None:
            raise CannotActError(f"{target.framework} has no option for it")
        return take(setting)

    def has_trainer(self, timeline: Timeline) -> bool:
        return timeline.runtime.framework not in _WITHOUT_TRAINER

    def rarer(self, timeline: Timeline, *times: int) -> tuple[int, ...]:
        """Steps between two occurrences that are `times` as far apart as those that were seen; () where none were.

        A script without a framework's trainer has no option that could be set.
        """
        if not self.has_trainer(timeline):
            return ()
        seen = [each for each in timeline.cadences if each.stage is self.stage and each.every_steps]
        every = max(seen, key=lambda each: each.seconds).every_steps if seen else None
        whole = (
            len(timeline.steps) if timeline.ending is Ending.FINISHED else None
        )  # of the run, where it was seen
        rarer = [max(1, round(every * each)) for each in times] if every else []
        return tuple(each for each in rarer if whole is None or each <= whole)
