"""A few steps take many times as long as the rest.

What it is
    A retry in the data source, a disk that stalls, another job on the machine, an allocator that gives
    memory back. The median step looks well, the run is slow all the same.
How it is recognised
    At most 5 % of the steps take more than three times the median, counted without `log`, `validate` and
    `checkpoint`, which come now and then by intention. Their time above the median, less garbage
    collections, is at least 2 % of the steady time. With fewer than three of them it is a warning at most:
    it may not come again. Where others keep the machine busy it is a note: it may be their doing.
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

from hotlap.cost.reading import disturbed
from hotlap.diagnose.inputs import line_place, top_line
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Stage, Steps
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.quantile import median
from hotlap.units import NS_PER_MS

FACTOR = 3.0
MOST = 0.05  # of the steps: what is more frequent is no exception
REPEATED = 3
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
        stage = _guilty(steps, first, outliers)
        evidence: Evidence = {
            "outliers": len(outliers),
            "steps": len(times),
            "outlier_ms": median([times[index] for index in outliers]) / NS_PER_MS,
            "step_ms": middle / NS_PER_MS,
            "stage": stage.value,
        }
        share = (excess - sight.timeline.pauses.seconds) / sight.summary.seconds
        at_most = _certainty(sight, len(outliers))
        where = line_place(top_line(sight.timeline, stage), None)
        return finding(self.cause, share, evidence, where, at_most)


def _certainty(sight: Sight, outliers: int) -> Severity:
    if disturbed(sight.timeline, sight.host):
        return Severity.NOTE
    return Severity.CRITICAL if outliers >= REPEATED else Severity.WARNING


def _unintended(steps: Steps, first: int) -> list[int]:
    """The walls of the steady steps without the stages that come now and then."""
    apart = [column[first:] for stage, column in steps.stages.items() if stage in INTENDED]
    walls: Sequence[int] = steps.wall[first:]
    return [wall - sum(parts) for wall, *parts in zip(walls, *apart, strict=True)]


def _guilty(steps: Steps, first: int, outliers: Sequence[int]) -> Stage:
    """The stage that grew most in the outliers."""
    excess = {
        stage: sum(column[first + index] for index in outliers) - len(outliers) * median(column[first:])
        for stage, column in steps.stages.items()
        if stage not in INTENDED
    }
    return max(excess, key=lambda stage: excess[stage], default=Stage.OTHER)
