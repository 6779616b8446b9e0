"""Predictions of fixes that relieve input, where steps with free input were measured: none can bring more."""

from __future__ import annotations

from hotlap.cost.prediction import Prediction
from hotlap.facts.ceiling import FreeInput
from hotlap.facts.diagnosis import Interval


def bounded(gain: float, interval: Interval, most: FreeInput) -> Prediction:
    """A prediction that stays below what free input was measured to bring."""
    likely = min(gain, max(0.0, most.gain))
    return Prediction(likely, Interval(min(interval.low, likely), max(likely, min(interval.high, most.high))))


def nearly_free(most: FreeInput, left_ms: float) -> Prediction:
    """Of a fix after which a step still pays `left_ms` for its input, or half or twice as much."""
    now_ms = most.step_ms * (1.0 + most.gain)
    slow, quick = (now_ms / (1.0 + end) for end in (most.low, most.high))
    gain, low, high = (
        now_ms / (step + left) - 1.0
        for step, left in ((most.step_ms, left_ms), (slow, 2 * left_ms), (quick, left_ms / 2))
    )
    return Prediction(gain, Interval(low, high))
