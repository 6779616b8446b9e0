"""There are more DataLoader workers, or threads in them, than pay.

What it is
    A worker costs a core and a hand-over: each batch is copied into shared memory and taken over by the
    training process. Items that are cheap are quicker to load in place. And workers whose threads outnumber the
    cores take them from the training: its threads then wait for each other.
How it is recognised
    Hypothesis: the step waits for data that the workers' own work does not explain (`hand-over`), or workers
    times their threads exceed the cores (`oversubscribed`). It becomes a finding only when an experiment with
    fewer workers, or with one thread in each, wins.
What to do
    Lower `num_workers` to the figure shown, and let each worker use one thread (`OMP_NUM_THREADS=1`).
Evidence
    `workers`: of the loader
    `wanted`: optional, workers of the best experiment
    `threads`: in each worker
    `cores`: of the host
    `batch_ms`: work of one batch in one worker
    `data_ms`: a step waits for data
    `reason`: hand-over or oversubscribed
"""

from __future__ import annotations

from hotlap.diagnose.inputs import InputTimes, input_of, workers_tried
from hotlap.diagnose.severity import Evidence, best_won, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.experiment import Experiment
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight


class WorkersTooMany(Rule):
    cause = Cause.WORKERS_TOO_MANY
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.INPUT_STARVED, Cause.ITEM_CPU_BOUND, Cause.COLLATE_BOUND})
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.loader.num_workers == 0:
            return None
        crowded = _crowded(seen, sight)
        best = best_won(each for each in sight.experiments.tried if self.confirmed_by(each, sight))
        evidence: Evidence = {
            "workers": seen.loader.num_workers,
            "wanted": int(best.setting) if best and best.knob == "num-workers" else None,
            "threads": seen.loader.worker_threads or 1,
            "cores": sight.host.cores,
            "batch_ms": seen.load.work.seconds * 1e3,
            "data_ms": sight.summary.ms(Stage.DATA),
            "reason": "oversubscribed" if crowded else "hand-over",
        }
        # Threads without a core slow down the training as well, not only its input.
        share = 1.0 if crowded or best is not None else seen.rest
        return finding(self.cause, share, evidence, seen.loader.place)

    def confirmed_by(self, experiment: Experiment, sight: Sight) -> bool:
        if experiment.knob == "worker-threads":
            return True
        now, then = workers_tried(experiment, sight)
        return now is not None and then is not None and then < now


def _crowded(seen: InputTimes, sight: Sight) -> bool:
    return seen.loader.num_workers * (seen.loader.worker_threads or 1) > sight.host.cores
