"""Saving checkpoints takes a noticeable part of the run.

What it is
    A checkpoint is serialised and written on the training thread; optimizer state makes it three times the
    size of the model.
How it is recognised
    The exposed time of `checkpoint` is at least 2 % of a steady step on average over all steps. Where it came only
    once it is a note: nobody knows yet how often it comes.
What to do
    Save less often, keep fewer copies, write to a fast disk, or save in another thread from a copy.
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


class CheckpointHeavy(Rule):
    cause = Cause.CHECKPOINT_HEAVY

    def examine(self, sight: Sight) -> Finding | None:
        return occasional(sight, self.cause, Stage.CHECKPOINT)
