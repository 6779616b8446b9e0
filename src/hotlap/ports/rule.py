"""A rule looks at what was seen and names one cause, or stays silent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.experiment import Experiment, Experiments
from hotlap.facts.host import Host
from hotlap.facts.summary import Summary, summarise
from hotlap.facts.timeline import Timeline


@dataclass(frozen=True)
class Sight:
    """All that a rule may look at. Of the timelines, one per rank, the one that set the pace comes first."""

    timelines: tuple[Timeline, ...]
    host: Host
    experiments: Experiments = field(default_factory=Experiments)

    @property
    def timeline(self) -> Timeline:
        return self.timelines[0]

    @cached_property
    def summary(self) -> Summary:
        """The steady state of the first timeline, reckoned once for all rules."""
        return summarise(self.timeline)


class Rule(ABC):
    """One cause. The module's docstring is its card: What it is, How it is recognised, What to do, Evidence.

    The share that it returns is exposed time which acting on the cause attacks, measured and never estimated. With
    `hypothesis` that time alone is no finding: an experiment with a knob that relieves the cause must win first.

    `refines` is the wider cause that this one explains: it is not reported beside it. `outranks` are the
    causes that come after this one where acting on either would bring about as much. `explains` are those
    whose remedy wins because it spreads the cost that this one removes, as a larger batch does.
    """

    cause: ClassVar[Cause]
    refines: ClassVar[Cause | None] = None
    outranks: ClassVar[frozenset[Cause]] = frozenset()
    explains: ClassVar[frozenset[Cause]] = frozenset()
    hypothesis: ClassVar[bool] = False

    @abstractmethod
    def examine(self, sight: Sight) -> Finding | None:
        """The finding, without fixes (those are added from the knobs that relieve the cause), or None."""

    def confirmed_by(self, experiment: Experiment, sight: Sight) -> bool:
        """Whether a gain of this experiment shows the cause. Its knob relieves it; not every setting may."""
        return True
