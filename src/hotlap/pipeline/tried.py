"""What a search has tried, and what deserves another try: beside another incumbent it may bring something else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from hotlap.facts.verdict import Gain, Ruling, Verdict
from hotlap.propose.search import Key

AFRESH = 1.1
"""Times as fast as when a setting brought too little: then another bottleneck stands. A larger batch cost nest what it
saved, until its memory stayed where it was."""

FAR_BEHIND = 0.1
"""The same batch was behind by 5 % once, surely, beside single precision: less than what turned it round later."""


@dataclass
class Tried:
    """`promises` is what each setting promised when it was tried."""

    promises: dict[Key, float] = field(default_factory=dict)
    _pace: float = 1.0  # of the incumbent, by the gains of what was accepted
    _missed: dict[Key, float] = field(default_factory=dict)  # the pace at which each brought too little

    def begin(self, key: Key, promise: float) -> None:
        self.promises[key] = promise
        self._missed.pop(key, None)

    def recall(self, verdicts: Iterable[Verdict]) -> None:
        """What an earlier search has tried. What the guard has dropped was no miss."""
        for each in verdicts:
            key = each.knob, str(each.setting)
            self.begin(key, each.predicted or 1.0)
            if each.ruling is Ruling.KEEP:
                self.advance(each.gain)
            elif each.guard is None:
                self.miss(key, each.gain)

    def miss(self, key: Key, gain: Gain | None) -> None:
        """It brought too little. What was far behind gets no other chance."""
        if gain is not None and gain.value > -FAR_BEHIND:
            self._missed[key] = self._pace

    def advance(self, gain: Gain | None) -> None:
        """Another incumbent stands, faster by this."""
        self._pace *= 1.0 + (gain.value if gain is not None else 0.0)
        for key, pace in self._missed.items():
            if self._pace >= AFRESH * pace:
                self.promises.pop(key, None)

    def has_missed(self, key: Key) -> bool:
        """It brought too little once: what was never tried goes first."""
        return key in self._missed
