"""Validation takes a noticeable part of the run.

What it is
    While the model is evaluated it does not train. A validation every few steps, or over a large set, adds
    up.
How it is recognised
    The exposed time of `validate` is at least 2 % of a steady step on average over all steps.
What to do
    Validate less often, on fewer batches in between and on all of them at the end, with a larger batch and
    without gradients.
Evidence
    `stage_ms`: a step, on average
    `each_ms`: one occurrence
    `count`: of occurrences seen
    `every`: optional, steps between two
"""

from __future__ import annotations

from hotlap.diagnose.cadence import occasional
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight


class ValidationHeavy(Rule):
    cause = Cause.VALIDATION_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        return occasional(sight, self.cause, Stage.VALIDATE)
