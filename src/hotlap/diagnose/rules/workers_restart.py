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

from hotlap.diagnose.inputs import restart_share, restarts, start_s
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight


class WorkersRestart(Rule):
    cause = Cause.WORKERS_RESTART
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.STEP_OUTLIERS})

    def examine(self, sight: Sight) -> Finding | None:
        loaders = sight.timeline.loaders
        shares = {index: restart_share(sight, index) for index, each in enumerate(loaders) if restarts(each)}
        if not shares or not sight.summary.n:
            return None
        dearest = max(shares, key=lambda index: shares[index])
        worst = loaders[dearest]
        evidence: Evidence = {
            "epochs": worst.epochs,
            "startup_s": start_s(sight.timeline, dearest),
            "workers": worst.num_workers,
            "start_method": worst.start_method,
        }
        return finding(self.cause, sum(shares.values()), evidence, worst.place)
