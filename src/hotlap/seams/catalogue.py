"""The knobs that this hotlap has, by id: those of its folder and those of entry points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hotlap import knobs
from hotlap.discover import unit, units
from hotlap.ports.knob import Knob

GROUP = "hotlap.knobs"


def all_knobs() -> dict[str, Knob]:
    return {knob.id: knob for knob in units(knobs, Knob, GROUP)}  # type: ignore[type-abstract]


def shortening(known: Mapping[str, Knob]) -> frozenset[str]:
    """Those beside which speed is counted in samples, never in tokens."""
    return frozenset(key for key, knob in known.items() if knob.shortens)


def some_knobs(ids: Iterable[str]) -> dict[str, Knob]:
    """Only these, as far as there are: a training process imports what its plan names."""
    wanted = list(ids)
    try:
        return {key: unit(knobs, Knob, key) for key in wanted}  # type: ignore[type-abstract]
    except ModuleNotFoundError:  # one of an entry point, or in a file of another name
        found = all_knobs()
        return {key: found[key] for key in wanted if key in found}
