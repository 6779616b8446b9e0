"""The knobs that this hotlap has, by id: those of its folder and those of entry points."""

from __future__ import annotations

from collections.abc import Iterable

from hotlap import knobs
from hotlap.discover import unit, units
from hotlap.ports.knob import Knob

GROUP = "hotlap.knobs"


def all_knobs() -> dict[str, Knob]:
    return {knob.id: knob for knob in units(knobs, Knob, GROUP)}  # type: ignore[type-abstract]


def some_knobs(ids: Iterable[str]) -> dict[str, Knob]:
    """Only these: a training process imports what its plan names. Raises KeyError for one that there is not."""
    wanted = list(ids)
    try:
        return {key: unit(knobs, Knob, key) for key in wanted}  # type: ignore[type-abstract]
    except ModuleNotFoundError:  # one of an entry point, or in a file of another name
        found = all_knobs()
        return {key: found[key] for key in wanted}
