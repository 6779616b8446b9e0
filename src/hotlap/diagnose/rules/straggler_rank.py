"""One rank is slower than the others, and all wait for it.

What it is
    Ranks meet in every step. One that loads slower, logs alone, or sits on a slower or busier device sets
    the pace of all.
How it is recognised
    A rank's own work is its step without the time in collectives (or, where that was not measured, without
    backward and optimizer, in which the waiting happens). The share is by how much the slowest exceeds the
    median of the others, as a part of the step; it is reported from 2 %.
What to do
    Look at the stage that is slower there: balance the data between ranks, move logging and saving out of
    the step, check the device's clock and its neighbours.
Evidence
    `rank`: that sets the pace
    `ranks`: in all
    `own_ms`: its own work a step
    `others_ms`: median of the others
    `stage`: where it is slower
"""

from __future__ import annotations

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.pace import WAITS, own_work_ms
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.quantile import median


class StragglerRank(Rule):
    cause = Cause.STRAGGLER_RANK
    outranks = frozenset(
        {
            Cause.INPUT_STARVED,
            Cause.COMM_EXPOSED,
            Cause.ITEM_CPU_BOUND,
            Cause.ITEM_IO_BOUND,
            Cause.MONITORING_HEAVY,
        }
    )

    def examine(self, sight: Sight) -> Finding | None:
        if len(sight.timelines) < 2:
            return None
        own, *rest = own_work_ms(sight.timelines)
        others = [work for work in rest if work is not None]
        if own is None or not others or not sight.summary.step_ms:
            return None
        usual = median(others)
        evidence: Evidence = {
            "rank": sight.timeline.rank,
            "ranks": len(sight.timelines),
            "own_ms": own,
            "others_ms": usual,
            "stage": _slower_stage(sight).value,
        }
        return finding(self.cause, (own - usual) / sight.summary.step_ms, evidence)


def _slower_stage(sight: Sight) -> Stage:
    others = [summarise(timeline) for timeline in sight.timelines[1:]]
    stages = [stage for stage in sight.summary.stages if stage not in WAITS]
    return max(
        stages,
        key=lambda stage: sight.summary.ms(stage) - median([other.ms(stage) for other in others]),
        default=Stage.OTHER,
    )
