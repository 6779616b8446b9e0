"""DataLoader workers are ended and started again in every epoch.

What it is
    Without `persistent_workers` each `iter(loader)` starts new processes. With fork that takes some ten
    milliseconds, with spawn or forkserver seconds: each worker imports torch and unpickles the dataset
    again.
How it is recognised
    A loader with workers that do not persist was iterated at least twice, and starting it again took at
    least 2 % of the time that was seen. The first start is not counted: it has to be paid once.
What to do
    Build the DataLoader with `persistent_workers=True`, or make epochs longer. Beware of a dataset whose
    attributes change between epochs: workers that persist do not see that.
Evidence
    `epochs`: seen
    `startup_s`: of one start
    `workers`: of the loader
    `start_method`: fork, forkserver or spawn
"""

from __future__ import annotations

from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Loader
from hotlap.ports.rule import Rule, Sight


class WorkersRestart(Rule):
    cause = Cause.WORKERS_RESTART
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.STEP_OUTLIERS})

    def examine(self, sight: Sight) -> Finding | None:
        restarted = [loader for loader in sight.timeline.loaders if _restarts(loader)]
        if not restarted or not sight.summary.n:
            return None
        worst = max(restarted, key=_again_s)
        evidence: Evidence = {
            "epochs": worst.epochs,
            "startup_s": worst.startup_s / worst.epochs,
            "workers": worst.num_workers,
            "start_method": worst.start_method,
        }
        spent = sum(_again_s(loader) for loader in restarted)
        seconds = sight.summary.seconds + sight.timeline.warmup.seconds
        return finding(self.cause, spent / seconds, evidence, worst.place)


def _restarts(loader: Loader) -> bool:
    return loader.num_workers > 0 and not loader.persistent_workers and loader.epochs > 1


def _again_s(loader: Loader) -> float:
    return loader.startup_s * (loader.epochs - 1) / loader.epochs
