"""DataLoader workers are ended and started again in every epoch.

What it is
    Without `persistent_workers` each `iter(loader)` starts new processes, and the end of an epoch ends them.
    With fork that takes some ten milliseconds, with spawn or forkserver seconds: each worker imports torch
    and unpickles the dataset again.
How it is recognised
    A loader with workers that do not persist was iterated at least twice, and ending and starting them
    again took at least 2 % of the time that was seen. The first start is not counted: it has to be paid once.
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
from hotlap.facts.timeline import Loader, Timeline
from hotlap.ports.rule import Rule, Sight


class WorkersRestart(Rule):
    cause = Cause.WORKERS_RESTART
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.STEP_OUTLIERS})

    def examine(self, sight: Sight) -> Finding | None:
        restarted = [index for index, loader in enumerate(sight.timeline.loaders) if _restarts(loader)]
        if not restarted or not sight.summary.n:
            return None
        starts = {index: _start_s(sight.timeline, index) for index in restarted}
        again = {index: each * (sight.timeline.loaders[index].epochs - 1) for index, each in starts.items()}
        dearest = max(again, key=lambda index: again[index])
        worst = sight.timeline.loaders[dearest]
        evidence: Evidence = {
            "epochs": worst.epochs,
            "startup_s": starts[dearest],
            "workers": worst.num_workers,
            "start_method": worst.start_method,
        }
        seconds = sight.summary.seconds + sight.timeline.warmup.seconds
        return finding(self.cause, sum(again.values()) / seconds, evidence, worst.place)


def _restarts(loader: Loader) -> bool:
    return loader.num_workers > 0 and not loader.persistent_workers and loader.epochs > 1


def _start_s(timeline: Timeline, index: int) -> float:
    """One start: of `iter(loader)`, or of the worker that was ready first where that took longer, as with spawn."""
    loader = timeline.loaders[index]
    rows = [row.startup_s / row.startups for row in timeline.workers if row.loader == index and row.startups]
    return max(loader.startup_s / loader.epochs, min(rows, default=0.0))
