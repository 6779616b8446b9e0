"""More DataLoader workers would hide the time that the step waits for data.

What it is
    The work of a batch fits beside the training, but too few processes share it. Without workers nothing
    overlaps at all: the training process loads, then trains.
How it is recognised
    There are fewer workers than cores, and the loader model (work per batch, hand-over, cores that training
    itself keeps busy) predicts that more workers, up to one per core, take at least 2 % off the step. The
    share is that prediction, and never more than the exposed time of `data`. Silent for an IterableDataset:
    each worker would read all of it again.
What to do
    Raise `num_workers` to the figure shown. Beyond the cores, only items that wait for a disk or a network
    gain.
Evidence
    `workers`: of the loader
    `wanted`: workers that serve best
    `cores`: of the host
    `batch_ms`: work of one batch in one worker
    `compute_ms`: a step outside data
"""

from __future__ import annotations

from hotlap.cost.pipeline import best_workers, predict
from hotlap.cost.reading import cores_for
from hotlap.diagnose.inputs import input_of
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight


class WorkersTooFew(Rule):
    cause = Cause.WORKERS_TOO_FEW
    refines = Cause.INPUT_STARVED
    # Where workers hide it all, items are not too dear for this host.
    outranks = frozenset({Cause.ITEM_CPU_BOUND, Cause.ITEM_IO_BOUND, Cause.COLLATE_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        seen, most = input_of(sight), sight.host.cores
        if seen is None or seen.loader.iterable or seen.loader.num_workers >= most:
            return None
        now, cores = seen.setting, cores_for(sight.timeline, sight.host)
        wanted = best_workers(seen.load, now, range(now.workers + 1, most + 1), cores)
        gain = predict(seen.load, now, now._replace(workers=wanted), cores).gain
        saved = min(seen.data, 1.0 - 1.0 / (1.0 + gain))
        evidence: Evidence = {
            "workers": now.workers,
            "wanted": wanted,
            "cores": most,
            "batch_ms": seen.load.work.seconds * 1e3,
            "compute_ms": seen.load.compute_s * 1e3,
        }
        return finding(self.cause, saved, evidence, seen.loader.place)
