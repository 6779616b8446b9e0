"""A few steps take many times as long as the rest.

What it is
    A retry in the data source, a disk that stalls, another job on the machine, an allocator that gives
    memory back. The median step looks well, the run is slow all the same.
How it is recognised
    At most 5 % of the steps take more than three times the median, counted without `log`, `validate` and
    `checkpoint`, which come now and then by intention. Their time above the median, less garbage collections
    and compiling, is at least 2 % of the steady time. With fewer than three of them it is a warning at most:
    it may not come again. Where others keep the machine busy it is a note, as it may be their doing; but not
    where 80 % of the excess is in one stage that is less than half of a usual step, since they would slow
    down all stages alike.
What to do
    See which stage holds the excess and what happened then. For data: cap retries, copy the data to a local
    disk, prefetch deeper.
Evidence
    `outliers`: steps
    `steps`: in all
    `outlier_ms`: median of the outliers
    `step_ms`: median of all
    `stage`: where the excess is
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.cost.reading import disturbed, training_loader
from hotlap.diagnose.inputs import line_place, role_of, top_line
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Stage, Steps
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.robust import median
from hotlap.units import NS_PER_MS

FACTOR = 3.0
MOST = 0.05  # of the steps: what is more frequent is no exception
REPEATED = 3
NEARLY_ALL, SMALL_PART = 0.8, 0.5  # of the excess in one stage that is at most this part of a usual step
INTENDED = {Stage.LOG, Stage.VALIDATE, Stage.CHECKPOINT}


class StepOutliers(Rule):
    cause = Cause.STEP_OUTLIERS
    outranks = frozenset(
        {Cause.INPUT_STARVED, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND, Cause.WORKERS_TOO_FEW}
    )

    def examine(self, sight: Sight) -> Finding | None:
        steps, first = sight.timeline.steps, sight.timeline.steady_from
        times = _unintended(steps, first)
        if not times:
            return None
        middle = median(times)
        outliers = [index for index, time in enumerate(times) if time > FACTOR * middle]
        if not outliers or len(outliers) > MOST * len(times):
            return None
        excess = sum(times[index] - middle for index in outliers) / NS_PER_MS / 1e3
        excesses = _excesses(steps, first, outliers)
        stage = max(excesses, key=lambda each: excesses[each])
        evidence: Evidence = {
            "outliers": len(outliers),
            "steps": len(times),
            "outlier_ms": median([times[index] for index in outliers]) / NS_PER_MS,
            "step_ms": middle / NS_PER_MS,
            "stage": stage.value,
        }
        pauses = sight.timeline.pauses
        share = (excess - pauses.seconds - pauses.compile_s) / sight.summary.seconds
        own = _concentrated(sight, excesses, stage) or not disturbed(sight.timeline, sight.host)
        at_most = _certainty(len(outliers), own)
        found = training_loader(sight.timeline)
        workers = found[1].num_workers if found and stage is Stage.DATA else 0
        where = line_place(top_line(sight.timeline, stage, role_of(workers)), None)
        return finding(self.cause, share, evidence, where, at_most)


def _certainty(outliers: int, own: bool) -> Severity:
    if outliers >= REPEATED:
        return Severity.CRITICAL if own else Severity.NOTE
    return Severity.WARNING if own else Severity.NOTE


def _unintended(steps: Steps, first: int) -> list[int]:
    """The walls of the steady steps without the stages that come now and then."""
    apart = [column[first:] for stage, column in steps.stages.items() if stage in INTENDED]
    walls: Sequence[int] = steps.wall[first:]
    return [wall - sum(parts) for wall, *parts in zip(walls, *apart, strict=True)]


def _excesses(steps: Steps, first: int, outliers: Sequence[int]) -> dict[Stage, float]:
    """By how much each stage grew in the outliers, in all."""
    return {
        stage: sum(column[first + index] for index in outliers) - len(outliers) * median(column[first:])
        for stage, column in steps.stages.items()
        if stage not in INTENDED
    }


def _concentrated(sight: Sight, excesses: dict[Stage, float], stage: Stage) -> bool:
    """Whether the excess is in one stage that is otherwise a small part: others would slow down all alike."""
    grown = sum(max(0.0, excess) for excess in excesses.values())
    usual = {each: summary.p50_ms for each, summary in sight.summary.stages.items() if each not in INTENDED}
    part = usual.get(stage, 0.0) / max(1e-9, sum(usual.values()))
    return part <= SMALL_PART and excesses[stage] >= NEARLY_ALL * grown
