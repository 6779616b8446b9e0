"""The workers keep up on average, but their queue is too short to cover slow batches.

What it is
    Batches take unequal time. The queue (`prefetch_factor` batches for each worker) covers a slow one only
    while it lasts; after that the step waits, although the workers stand idle at other times.
How it is recognised
    Hypothesis, which an experiment with a larger `prefetch_factor` must confirm: the loader has workers, and most of
    the waiting comes in bursts: the median step waits for less than half of the mean wait. The time attacked is the
    waiting above the median.
What to do
    Raise `prefetch_factor`. It costs memory: batch size times workers times the factor.
Evidence
    `prefetch`: batches for each worker
    `wanted`: batches for each worker of the best experiment, or to try
    `workers`: of the loader
    `busy_share`: of the workers' life
    `data_p50_ms`: a step waits, median
    `data_p95_ms`: a step waits, p95
"""

from __future__ import annotations

from hotlap.cost.reading import prefetch_of
from hotlap.diagnose.inputs import input_of
from hotlap.diagnose.severity import Evidence, best_won, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.experiment import Experiment
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight


class PrefetchShallow(Rule):
    cause = Cause.PREFETCH_SHALLOW
    refines = Cause.INPUT_STARVED
    outranks = frozenset(
        {Cause.STEP_OUTLIERS, Cause.INPUT_STARVED, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND}
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        seen, waits = input_of(sight), sight.summary.stages.get(Stage.DATA)
        if seen is None or waits is None or not seen.loader.num_workers or waits.p50_ms > waits.ms / 2:
            return None
        best = best_won(each for each in sight.experiments.tried if self.confirmed_by(each, sight))
        evidence: Evidence = {
            "prefetch": prefetch_of(seen.loader),
            "wanted": int(best.setting) if best else 2 * prefetch_of(seen.loader),
            "workers": seen.loader.num_workers,
            "busy_share": seen.busy,
            "data_p50_ms": waits.p50_ms,
            "data_p95_ms": waits.p95_ms,
        }
        share = waits.share * (1.0 - waits.p50_ms / waits.ms)
        return finding(self.cause, share, evidence, seen.loader.place)

    def confirmed_by(self, experiment: Experiment, sight: Sight) -> bool:
        return experiment.knob == "prefetch-factor"
