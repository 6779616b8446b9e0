"""A rule looks at what was seen and names one cause, or stays silent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.host import Host
from hotlap.facts.summary import Summary, summarise
from hotlap.facts.timeline import Timeline


@dataclass(frozen=True)
class Sight:
    """All that a rule may look at: one timeline per rank (the first is the one that set the pace) and the host."""

    timelines: tuple[Timeline, ...]
    host: Host

    @property
    def timeline(self) -> Timeline:
        return self.timelines[0]

    @cached_property
    def summary(self) -> Summary:
        """The steady state of the first timeline, reckoned once for all rules."""
        return summarise(self.timeline)


class Rule(ABC):
    """One cause. The module's docstring is its card: What it is, How it is recognised, What to do."""

    cause: ClassVar[Cause]

    @abstractmethod
    def examine(self, sight: Sight) -> Finding | None:
        """The finding, without fixes (those are added from the knobs that relieve the cause), or None."""
