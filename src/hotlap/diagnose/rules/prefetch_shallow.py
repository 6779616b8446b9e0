"""The workers keep up on average, but their queue is too short to cover slow batches.

What it is
    Batches take unequal time. The queue (`prefetch_factor` batches for each worker) covers a slow one only
    while it lasts; after that the step waits, although the workers stand idle at other times.
How it is recognised
    The workers are idle for at least 15 % of their life, and together they make batches at least as quickly
    as training takes them up, so that their number is not what is missing. Most of the waiting comes in
    bursts: the median step waits for less than half of the mean wait. And the bursts are of a size that a
    queue can cover: the p95 wait is shorter than what a queue of 8 for each worker holds. Waits that only
    come with the first batches of an epoch do not count: no queue is filled yet then. The share is the
    waiting above the median.
What to do
    Raise `prefetch_factor`. It costs memory: batch size times workers times the factor.
Evidence
    `prefetch`: batches for each worker
    `wanted`: batches for each worker that cover the p95 wait
    `workers`: of the loader
    `busy_share`: of the workers' life
    `data_p50_ms`: a step waits, median
    `data_p95_ms`: a step waits, p95
"""

from __future__ import annotations

from math import ceil

from hotlap.diagnose.inputs import Input, input_of
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.summary import StageSummary
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight
from hotlap.units import NS_PER_MS

IDLE_FROM = 0.15
EACH_EPOCH = 2.0  # long waits for each epoch: one is the first batch, another may follow it
DEEPEST = 8  # batches for each worker: beyond this, memory is better spent on a cache


class PrefetchShallow(Rule):
    cause = Cause.PREFETCH_SHALLOW
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.STEP_OUTLIERS, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        seen, waits = input_of(sight), sight.summary.stages.get(Stage.DATA)
        if seen is None or waits is None or not seen.loader.num_workers or seen.busy > 1.0 - IDLE_FROM:
            return None
        wanted = _wanted(seen, waits)
        if _at_epochs(sight, seen, waits) or not _keep_up(seen):
            return None
        if waits.p50_ms > waits.ms / 2 or not seen.setting.prefetch < wanted <= DEEPEST:
            return None
        evidence: Evidence = {
            "prefetch": seen.setting.prefetch,
            "wanted": wanted,
            "workers": seen.loader.num_workers,
            "busy_share": seen.busy,
            "data_p50_ms": waits.p50_ms,
            "data_p95_ms": waits.p95_ms,
        }
        share = waits.share * (1.0 - waits.p50_ms / waits.ms)
        return finding(self.cause, share, evidence, seen.loader.place)


def _keep_up(seen: Input) -> bool:
    """Two workers that are too slow hand over two batches at once and then none: that only looks like bursts."""
    made_s = seen.load.batches * seen.load.work.seconds / seen.loader.num_workers
    return made_s <= seen.load.compute_s


def _at_epochs(sight: Sight, seen: Input, waits: StageSummary) -> bool:
    """Whether the waits are those of the first batch of each epoch, when no queue is filled yet."""
    timeline = sight.timeline
    bound = (waits.p50_ms + waits.p95_ms) / 2 * NS_PER_MS
    column = timeline.steps.stages[Stage.DATA][timeline.steady_from :]
    bursts = sum(wait > bound for wait in column)
    return bursts <= EACH_EPOCH * seen.loader.epochs * len(column) / len(timeline.steps)


def _wanted(seen: Input, waits: StageSummary) -> int:
    """What is held now, plus as many batches as training takes up during a slow one."""
    taken = waits.p95_ms / 1e3 / max(1e-9, seen.load.compute_s) * seen.load.batches
    return seen.setting.prefetch + ceil(taken / seen.loader.num_workers)
