"""Validation takes a noticeable part of the run.

What it is
    While the model is evaluated it does not train. A validation every few steps, or over a large set, adds
    up.
How it is recognised
    The exposed time of `validate` is at least 2 % of a steady step on average over all steps. Where it came only
    once it is a note: nobody knows yet how often it comes.
What to do
    Validate less often, on fewer batches in between and on all of them at the end, with a larger batch and
    without gradients.
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


class ValidationHeavy(Rule):
    cause = Cause.VALIDATION_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        return occasional(sight, self.cause, Stage.VALIDATE)
