"""Writing logs takes a noticeable part of the run.

What it is
    Progress bars, loggers, printing and plots run on the training thread. Their cost comes with each
    occurrence, so that the cadence decides.
How it is recognised
    The exposed time of `log` is at least 2 % of a steady step on average over all steps. Where it came only
    once it is a note: nobody knows yet how often it comes.
What to do
    Log every so many steps, hand figures over as tensors rather than as numbers, and write in another thread.
Evidence
    `stage_ms`: a step, on average
    `each_ms`: one occurrence
    `count`: of occurrences seen
    `every`: optional, steps between two, where it came at least twice
"""

from __future__ import annotations

from hotlap.diagnose.inputs import occasional
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight


class LoggingHeavy(Rule):
    cause = Cause.LOGGING_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        return occasional(sight, self.cause, Stage.LOG)
