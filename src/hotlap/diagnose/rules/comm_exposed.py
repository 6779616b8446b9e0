"""Exchanging gradients between ranks holds the step up.

What it is
    Gradients are summed over all ranks while backward still runs. What does not fit beside it is exposed:
    too small or too large buckets, a slow link, or a model with more parameters than computation.
How it is recognised
    There are several ranks, and the time in collectives on the host's path, outside of validation, logging and
    checkpoints, is at least 2 % of the step even on the rank that spends least there: on that rank it is no
    waiting for a slower one.
What to do
    Accumulate gradients over several batches without exchanging them (`no_sync`), change the bucket size,
    send bf16 gradients, or mark the graph as static.
Evidence
    `comm_ms`: a step
    `backend`: of torch.distributed
    `ranks`: in all
"""

from __future__ import annotations

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.rule import Rule, Sight

BESIDE = (Stage.LOG, Stage.VALIDATE, Stage.CHECKPOINT)  # what is exchanged there is no gradient


class CommExposed(Rule):
    cause = Cause.COMM_EXPOSED

    def examine(self, sight: Sight) -> Finding | None:
        if sight.timeline.world < 2:
            return None
        seen = [each for each in (_exchange(timeline) for timeline in sight.timelines) if each is not None]
        if not seen:
            return None
        share, comm_ms = min(seen)
        evidence: Evidence = {
            "comm_ms": comm_ms,
            "backend": sight.timeline.runtime.backend or "unknown",
            "ranks": sight.timeline.world,
        }
        return finding(self.cause, share, evidence)


def _exchange(timeline: Timeline) -> tuple[float, float] | None:
    """Share of the step and milliseconds of a step in collectives; None where they were not timed."""
    summary = summarise(timeline)
    if timeline.comm_s is None or not summary.n:
        return None
    spent = timeline.comm_s - sum(timeline.comm_stages.get(stage, 0.0) for stage in BESIDE)
    return spent / summary.seconds, spent * 1e3 / summary.n
