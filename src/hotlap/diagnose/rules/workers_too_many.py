"""There are more DataLoader workers, or threads in them, than pay.

What it is
    A worker costs a core and a hand-over: each batch is copied into shared memory and taken over by the
    training process, about a millisecond plus two for each MiB. Items that are cheap are quicker to load in
    place. And workers whose threads outnumber the cores take them from the training: its threads then wait
    for each other.
How it is recognised
    `hand-over`: the loader model predicts that fewer workers (none, for cheap items) take at least 2 % off
    the step. `oversubscribed`: workers times their threads exceed the cores, and the job itself keeps at
    least 85 % of all cores busy. The share is then 0.3 of the part of the demand that the cores cannot
    meet: a process with two threads beside a busy core was seen to lose up to half of its speed, and most
    jobs lose less.
What to do
    Lower `num_workers` to the figure shown, and let each worker use one thread (`OMP_NUM_THREADS=1`).
Evidence
    `workers`: of the loader
    `wanted`: workers that serve best
    `threads`: in each worker
    `cores`: of the host
    `batch_ms`: work of one batch in one worker
    `data_ms`: a step waits for data
    `reason`: hand-over or oversubscribed
"""

from __future__ import annotations

from hotlap.cost.pipeline import best_workers, predict
from hotlap.cost.reading import SATURATED, cores_for
from hotlap.diagnose.inputs import Input, input_of
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.quantile import median

OVERCOMMIT_COST = 0.3


class WorkersTooMany(Rule):
    cause = Cause.WORKERS_TOO_MANY
    refines = Cause.INPUT_STARVED

    def examine(self, sight: Sight) -> Finding | None:
        seen, cores = input_of(sight), cores_for(sight.timeline, sight.host)
        if seen is None or seen.loader.num_workers == 0:
            return None
        wanted = best_workers(seen.load, seen.setting, range(seen.loader.num_workers + 1), cores)
        crowded, dear = _crowded(seen, sight), _dear(seen, wanted, cores)
        evidence: Evidence = {
            "workers": seen.loader.num_workers,
            "wanted": min(wanted, sight.host.cores),
            "threads": seen.loader.worker_threads or 1,
            "cores": sight.host.cores,
            "batch_ms": seen.load.work.seconds * 1e3,
            "data_ms": sight.summary.ms(Stage.DATA),
            "reason": "oversubscribed" if crowded > dear else "hand-over",
        }
        return finding(self.cause, max(crowded, dear), evidence, seen.loader.place)


def _dear(seen: Input, wanted: int, cores: float) -> float:
    """What fewer workers save: never more than the wait that the workers' own work does not explain."""
    gain = predict(seen.load, seen.setting, seen.setting._replace(workers=wanted), cores).gain
    return min(seen.rest, 1.0 - 1.0 / (1.0 + gain)) if gain > 0 else 0.0


def _crowded(seen: Input, sight: Sight) -> float:
    cores, running = sight.host.cores, seen.loader.num_workers * (seen.loader.worker_threads or 1)
    if running <= cores or _own_cpu(sight.timeline) < SATURATED * cores:
        return 0.0
    return OVERCOMMIT_COST * (1.0 - cores / (running + seen.load.compute_cores))


def _own_cpu(timeline: Timeline) -> float:
    used = [gauge.cpu + gauge.workers_cpu for gauge in timeline.gauges]
    return median(used) if used else 0.0
