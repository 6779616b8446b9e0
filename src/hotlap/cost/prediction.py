"""What a change would bring, before it is tried."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.facts.diagnosis import Interval


@dataclass(frozen=True)
class Prediction:
    """`gain` is the throughput ratio minus one: 0.5 is half as fast again."""

    gain: float
    interval: Interval
