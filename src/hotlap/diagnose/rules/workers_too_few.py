"""More DataLoader workers hide the time that the step waits for data.

What it is
    The work of a batch fits beside the training, but too few processes share it. Without workers nothing
    overlaps at all: the training process loads, then trains.
How it is recognised
    Hypothesis: the step waits for data, and the loader has fewer workers than the machine could run (four for
    each core where items wait rather than compute). Silent for an IterableDataset: each worker would read all
    of it again. It becomes a finding when an experiment with more workers wins, and saves at least half of what
    free input would.
What to do
    Raise `num_workers` to the figure shown. Beyond the cores, only items that wait for a disk or a network
    gain.
Evidence
    `workers`: of the loader
    `wanted`: workers of the best experiment, or to try
    `cores`: of the host
    `batch_ms`: work of one batch in one worker
    `compute_ms`: a step outside data
"""

from __future__ import annotations

from hotlap.diagnose.inputs import input_of, workers_tried
from hotlap.diagnose.severity import Evidence, best_won, finding, free_input_saves
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.experiment import Experiment
from hotlap.ports.rule import Rule, Sight

WAITING_WORKERS = 4  # for each core: items that wait leave the processor to others
HALF = 0.5  # of what free input saves: more workers that save less are not the answer, only a fix


class WorkersTooFew(Rule):
    cause = Cause.WORKERS_TOO_FEW
    refines = Cause.INPUT_STARVED
    outranks = frozenset(
        {Cause.INPUT_STARVED, Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND, Cause.COLLATE_BOUND}
    )
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if (
            seen is None
            or seen.loader.iterable
            or seen.loader.num_workers >= WAITING_WORKERS * sight.host.cores
        ):
            return None
        most = free_input_saves(sight.experiments)
        best = best_won(each for each in sight.experiments.tried if self.confirmed_by(each, sight))
        if best is not None and most is not None and best.saved < HALF * most:
            return None
        evidence: Evidence = {
            "workers": seen.loader.num_workers,
            "wanted": int(best.setting) if best else sight.host.cores,
            "cores": sight.host.cores,
            "batch_ms": seen.load.work.seconds * 1e3,
            "compute_ms": seen.load.compute_s * 1e3,
        }
        return finding(self.cause, seen.data, evidence, seen.loader.place)

    def confirmed_by(self, experiment: Experiment, sight: Sight) -> bool:
        now, then = workers_tried(experiment, sight)
        return now is not None and then is not None and then > now
