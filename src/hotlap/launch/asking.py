"""Runs a job for its first steps only, to ask where the settings of a plan could act; nothing of it stays applied."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.launch.counter import counted
from hotlap.launch.environment import child_environment
from hotlap.launch.planned import pass_plan, records_of
from hotlap.launch.process import Outcome, Signals, run_job
from hotlap.seams.record import Record

_PATIENCE_S = 30.0
"""After its last step a job may write a checkpoint; one that goes on for longer caught the word to stop."""


def ask(job: Job, plan: Plan) -> tuple[Outcome, tuple[Record, ...]]:
    """How the job ended, and what was found out; what the script prints goes to standard error."""
    with tempfile.TemporaryDirectory(prefix="hotlap-knobs-") as name, Signals() as signals:
        folder = Path(name)
        environment = child_environment(folder, plan=pass_plan(folder, plan, asking=True), taps=False)
        outcome = run_job(job, environment, _Patience(folder).tick, signals, quiet_stdout=True)
        return outcome, records_of(folder)


class _Patience:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._steps, self._since = 0, time.monotonic()

    def tick(self, _: int) -> bool:
        """Whether to let the job go on: the steps end it by themselves, long ones one after the other."""
        steps = max((each.steps for each in counted(self._folder).values()), default=0)
        if steps != self._steps or not steps:
            self._steps, self._since = steps, time.monotonic()
        return steps < 2 or time.monotonic() - self._since < _PATIENCE_S
