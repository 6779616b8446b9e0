"""Batch sizes: doubled as long as throughput rises; halved for memory, with the effective batch kept.

A larger batch changes how many samples an optimizer step sees, so the learning rate goes with it (`scale-lr`). A
smaller one goes with `accumulate`, so that an optimizer step sees as many samples as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hotlap.cost.reading import training_loader
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Goal

BATCH, ACCUMULATE, SCALE_LR = "batch-size", "accumulate", "scale-lr"
_TIMES = 2
_LINEAR = frozenset({"SGD"})  # for which the rate grows with the batch; Adam and its kin take the root


@dataclass(frozen=True)
class Batch:
    """A batch size to try next, and what goes with it."""

    size: int
    beside: Mapping[str, Any]


def next_batch(timeline: Timeline, plan: Plan, goal: Goal, keep: bool) -> Batch | None:
    """From the size that the incumbent trains with. `keep`: an optimizer step must see as many samples as it does."""
    found = training_loader(timeline)
    now = found[1].batch_size if found else None
    if found is None or not now:
        return None
    if goal is Goal.MEMORY:
        return _halved(now, plan)
    length = found[1].dataset.length
    if keep or plan.settings.get(ACCUMULATE, 1) != 1 or (length is not None and now * _TIMES > length):
        return None
    return Batch(now * _TIMES, {SCALE_LR: _rule(timeline)})


def _halved(now: int, plan: Plan) -> Batch | None:
    if now % _TIMES:
        return None
    return Batch(now // _TIMES, {ACCUMULATE: int(plan.settings.get(ACCUMULATE, 1)) * _TIMES})


def _rule(timeline: Timeline) -> str:
    kinds = {each.kind for each in timeline.optimizers}
    return "linear" if kinds and kinds <= _LINEAR else "sqrt"
