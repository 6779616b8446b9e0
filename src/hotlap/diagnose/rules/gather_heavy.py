"""Sorting, summing up and moving rows takes a noticeable part of forward and backward.

What it is
    Operators such as `argsort`, `cumsum`, `gather`, `scatter_add` and `index_add` compute next to nothing: they
    read and write memory in an order that caches do not like. Pooling points into cells, routing tokens and
    building graphs is often written with them, and easily takes longer than the layers around it.
How it is recognised
    The stack sampler met lines of the model's own code that call such an operator, and these lines, with what else
    their function calls directly, hold at least a fifth of forward and backward. On a GPU lines only show where work
    is queued: there the operators must have been seen too, and their share counts. How much another way of
    writing it would save is not known, so it is never more than a warning.
What to do
    Sort once where the order is the same in every step (camera geometry, fixed graphs). Sum rows by segments
    (`embedding_bag`, `segment_reduce`, `index_add`) instead of over all rows with `cumsum`. Leave out rows that do
    not count before they are moved, not after.
Evidence
    `calls`: operators of this kind on the lines
    `line_ms`: a step on the lines of these functions, or in the operators where they were seen
    `line_share`: of the samples of its stage on the dearest line
    `ops_share`: optional, of the operators' time
"""

from __future__ import annotations

import re

from hotlap.diagnose.compute import compute_share
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import HotLine, Stage, Timeline
from hotlap.ports.rule import Rule, Sight

SAMPLES = 5  # fewer do not make a share
NOTICED = 0.2  # of forward and backward: less is what models usually spend on such work
_NAMES = (
    "argsort|sort|msort|cumsum|cumprod|gather|scatter|scatter_|scatter_add|scatter_add_|scatter_reduce|scatter_reduce_"
    "|index_add|index_add_|index_copy|index_copy_|index_put|index_put_|index_select|take_along_dim|unique"
    "|unique_consecutive|nonzero|searchsorted|bucketize|bincount|masked_select|masked_scatter|masked_scatter_"
)
_CALL = re.compile(rf"\.({_NAMES})\(")
_OPERATOR = re.compile(rf"aten::(_?({_NAMES})(_impl)?_?|_unique2?|index)")
_COMPUTES = (Stage.FORWARD, Stage.BACKWARD)


class GatherHeavy(Rule):
    cause = Cause.GATHER_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        lines = _lines(sight.timeline)
        calling = [line for line in lines if _CALL.search(line.place.code)]
        functions = {(line.place.file, line.place.function) for line in calling}
        held = [line for line in lines if (line.place.file, line.place.function) in functions]
        by_ops, compute = _by_operators(sight.timeline), compute_share(sight)
        share = sum(sight.summary.share(line.stage) * line.share for line in held)
        if by_ops is not None:
            share = by_ops * compute
        elif sight.timeline.on_accelerator:
            return None
        if not calling or compute <= 0 or share / compute < NOTICED:
            return None
        dearest = max(held, key=lambda line: sight.summary.share(line.stage) * line.share)
        names = dict.fromkeys(name for line in calling for name in _CALL.findall(line.place.code))
        evidence: Evidence = {
            "calls": ", ".join(names),
            "line_ms": share * (sight.summary.step_ms or 0.0),
            "line_share": dearest.share,
            "ops_share": by_ops,
        }
        return finding(self.cause, share, evidence, dearest.place, at_most=Severity.WARNING)


def _lines(timeline: Timeline) -> list[HotLine]:
    """Whose time is their own, or that of operators which they call directly."""
    here = [line for line in timeline.lines if line.stage in _COMPUTES and line.role == "main"]
    return [line for line in here if line.samples >= SAMPLES and not line.callee]


def _by_operators(timeline: Timeline) -> float | None:
    if timeline.ops is None or not timeline.ops.top:
        return None
    return sum(each.share for each in timeline.ops.top if _OPERATOR.fullmatch(each.name))
