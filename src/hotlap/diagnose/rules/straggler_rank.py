"""One rank is slower than the others, and all wait for it.

What it is
    Ranks meet in every step. One that loads slower, logs alone, or sits on a slower or busier device sets
    the pace of all.
How it is recognised
    A rank's own work is its step without the time in collectives (or, where that was not measured, without
    backward and optimizer, in which the waiting happens), and without validation and checkpoints: the rank that
    saves for all is no straggler. The share is by how much the slowest exceeds the median of the others, as a
    part of the step; it is reported from 2 %.
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

from collections.abc import Sequence

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.summary import WAITS, Summary, own_work_ms, summarise
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.robust import median

FOR_ALL = (Stage.VALIDATE, Stage.CHECKPOINT)  # what one rank does for the others


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
        summaries = [summarise(timeline) for timeline in sight.timelines]
        works = own_work_ms(sight.timelines, summaries)
        known = {
            index: work - summaries[index].ms(*FOR_ALL)
            for index, work in enumerate(works)
            if work is not None
        }
        if len(known) < 2 or not sight.summary.step_ms:
            return None
        slowest = max(known, key=lambda index: known[index])
        own = known.pop(slowest)
        usual = median(list(known.values()))
        evidence: Evidence = {
            "rank": sight.timelines[slowest].rank,
            "ranks": len(sight.timelines),
            "own_ms": own,
            "others_ms": usual,
            "stage": _slower_stage(summaries, slowest).value,
        }
        return finding(self.cause, (own - usual) / sight.summary.step_ms, evidence)


def _slower_stage(summaries: Sequence[Summary], slowest: int) -> Stage:
    own, others = summaries[slowest], [each for index, each in enumerate(summaries) if index != slowest]
    stages = [stage for stage in own.stages if stage not in (*WAITS, *FOR_ALL)]
    return max(
        stages,
        key=lambda stage: own.ms(stage) - median([other.ms(stage) for other in others]),
        default=Stage.OTHER,
    )
