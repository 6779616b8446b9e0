"""A plan that is only asked: one setting of every knob, to find out which of them could act on a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.facts.plan import Plan
from hotlap.ports.knob import Knob
from hotlap.ports.values import Choice, Flag, Share, Values, Whole

_AS_IT_IS = ("off", "32")  # words that ask for nothing
_SMALL = 2


def asking_plan(knobs: Mapping[str, Knob]) -> Plan:
    """Knobs that exclude each other stand side by side: each is taken back before the next is asked."""
    values = {key: asked_value(knob.values) for key, knob in knobs.items()}
    return Plan({key: value for key, value in values.items() if value is not None})


def asked_value(values: Values) -> Any:
    """A setting that would change something; None for values that only their knob understands."""
    if isinstance(values, Flag):
        return True
    if isinstance(values, Choice):
        return next((word for word in reversed(values.words) if word not in _AS_IT_IS), values.words[-1])
    if isinstance(values, Whole):
        return min(max(values.low, _SMALL), values.high)
    return 1 / _SMALL if isinstance(values, Share) else None
