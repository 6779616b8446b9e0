"""Validate on a part of the validation set.

What it does
    Lightning: `limit_val_batches`, at least one batch. Hugging Face Trainer: the evaluation set is cut to its first
    samples. mmengine: the validation loop ends after its first batches.
When it helps
    `validate` takes a large share of the run, and a part of the set says as much about progress.
What it costs
    Validated figures are noisier, and those of different shares must not be compared. Run the last validation in
    full.
Numerics
    Validation that draws random numbers moves the random state of what follows; schedules that follow a validated
    figure see another one.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics, TrainerKnob
from hotlap.ports.values import Share


class LimitValidation(TrainerKnob):
    id = "limit-validation"
    relieves = frozenset({Cause.VALIDATION_HEAVY})
    numerics = Numerics.STATISTICAL
    values = Share()
    stage = Stage.VALIDATE
    absent = (
        "the script validates by itself, in a loop of its own: stop that loop after a part of its batches"
    )

    def settings(self, host: Host, timeline: Timeline) -> tuple[float, ...]:
        seen = any(each.stage is self.stage and each.count for each in timeline.cadences)
        return (0.25,) if seen and self.has_trainer(timeline) else ()
