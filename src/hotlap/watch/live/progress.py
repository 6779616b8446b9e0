"""How far a job is, and what is left: of the whole training where its framework says so, else of this epoch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotlap.watch.live.told import Told


def progress(journal: Told, steps: int, rate: float | None) -> dict[str, Any] | None:
    """`done` of `total` optimizer steps, the epoch where that is what is known, and seconds left; None if unknown."""
    notes = journal.notes
    total = notes.get("total")
    if isinstance(total, int) and total > 0:
        done = min(steps, total)
        return {"done": done, "total": total, "epoch": None, "left_s": _left(total - done, rate)}
    epoch = _training_epoch(notes.get("epochs"))
    if epoch is None:
        return None
    batches, begun, at_step = epoch
    passes = notes.get("passes") if isinstance(notes.get("passes"), int) else 1
    total = max(1, batches // max(1, passes or 1))
    made = steps if journal.steps is None else journal.steps  # of the same moment as the epoch's beginning
    done = min(max(0, made - at_step), total)
    return {"done": done, "total": total, "epoch": begun, "left_s": _left(total - done, rate)}


def _training_epoch(epochs: Any) -> tuple[int, int, int] | None:
    """Batches, number and first step of the longest loader: validation has fewer batches."""
    if not isinstance(epochs, Mapping):
        return None
    known = [
        (int(length), int(each["begun"]), int(each["at_step"]))
        for length, each in epochs.items()
        if length.isdigit() and isinstance(each, Mapping) and {"begun", "at_step"} <= each.keys()
    ]
    return max(known, default=None)


def _left(steps: int, rate: float | None) -> float | None:
    return steps / rate if rate else None
