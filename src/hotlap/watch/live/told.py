"""What the monitors of a job have told, as far as it has the form that they give it; all else is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Told:
    """A journal, read from outside."""

    pid: int | None = None
    steps: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    monitors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cost: Mapping[str, float] | None = None


def told(journal: Mapping[str, Any]) -> Told:
    cost = _mapping(journal.get("cost"))
    figures = {name: each for name in ("share", "spent") if isinstance(each := cost.get(name), int | float)}
    return Told(
        pid=_whole(journal.get("pid")),
        steps=_whole(journal.get("steps")),
        notes=_mapping(journal.get("notes")),
        monitors={
            str(name): _word(each)
            for name, each in _mapping(journal.get("monitors")).items()
            if isinstance(each, Mapping) and isinstance(each.get("state"), str)
        },
        cost=figures if len(figures) == 2 else None,
    )


def _word(word: Mapping[str, Any]) -> dict[str, Any]:
    figures = _mapping(word.get("figures"))
    series = word.get("series")
    return {
        "state": word["state"],
        "gravity": str(word.get("gravity")),
        "since": _whole(word.get("since")),
        "figures": {name: each for name, each in figures.items() if isinstance(each, int | float | str)},
        "series": series if isinstance(series, list) else [],
    }


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def is_sound(view: Mapping[str, Any]) -> bool:
    """Whether a stored view has the form of one: its file may have been damaged or made by somebody else."""
    parts = {name: view.get(name) for name in ("lately", "drift", "usage", "progress", "job")}
    if not all(each is None or isinstance(each, Mapping) for each in parts.values()):
        return False
    numbers = [each for part in ("lately", "usage", "progress") for each in _mapping(parts[part]).values()]
    stages = _mapping(_mapping(parts["lately"]).get("stages")).values()
    plain = all(each is None or isinstance(each, int | float | Mapping) for each in numbers)
    drift, job = _mapping(parts["drift"]), _mapping(parts["job"])
    points = drift.get("series", [])
    return (
        _whole(view.get("steps")) is not None
        and plain
        and all(isinstance(each, int | float) for each in stages)
        and (not drift or drift.get("state") in ("learning", "steady", "slower"))
        and isinstance(points, list)
        and all(isinstance(each, list) and len(each) == 2 for each in points)
        and all(isinstance(each, str) for each in job.values())
    )
