"""The gain from shrinking one part of a step while the rest stays as it is."""

from __future__ import annotations

from hotlap.cost.prediction import Prediction
from hotlap.facts.diagnosis import Interval

LEAST_STEP = 0.02  # a step never shrinks to nothing: loop, hand-over and bookkeeping stay


def gain(share: float, saved: float) -> float:
    """`share` is the part's share of the step, `saved` the fraction of that part that goes away."""
    return 1.0 / max(LEAST_STEP, 1.0 - share * saved) - 1.0


def shrink(share: float, saved: Interval) -> Prediction:
    """The gain where `saved` is only known to lie in an interval; its middle gives the figure itself."""
    middle = (saved.low + saved.high) / 2
    return Prediction(gain(share, middle), Interval(gain(share, saved.low), gain(share, saved.high)))
