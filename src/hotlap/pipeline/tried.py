"""What a search has tried, and what deserves another try: beside another incumbent it may bring something else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hotlap.facts.verdict import Gain
from hotlap.propose.search import Candidate, Key

AFRESH = 1.1
"""Times as fast as when a setting brought too little: then another bottleneck stands. A larger batch cost nest what it
saved, until its numbers were half as long and its memory stayed where it was: then it was a fifth faster."""


@dataclass
class Tried:
    """`promises` is what each setting promised when it was tried."""

    promises: dict[Key, float] = field(default_factory=dict)
    _pace: float = 1.0  # of the incumbent, by the gains of what was accepted
    _missed: dict[Key, float] = field(default_factory=dict)  # the pace at which each brought too little

    def begin(self, candidate: Candidate) -> None:
        self.promises[candidate.key] = candidate.promise

    def recall(self, promises: Mapping[Key, float]) -> None:
        """What an earlier search has tried."""
        self.promises.update(promises)

    def miss(self, candidate: Candidate, gain: Gain | None) -> None:
        """It brought too little. What is surely slower gets no other chance."""
        if gain is not None and gain.interval.high > 0:
            self._missed[candidate.key] = self._pace

    def advance(self, gain: Gain | None) -> None:
        """Another incumbent stands, faster by this."""
        self._pace *= 1.0 + (gain.value if gain is not None else 0.0)
        for key, pace in self._missed.items():
            if self._pace >= AFRESH * pace:
                self.promises.pop(key, None)

    def has_met(self, candidate: Candidate) -> bool:
        """Whether there is a verdict on it: what was never tried goes first."""
        return candidate.key in self._missed
