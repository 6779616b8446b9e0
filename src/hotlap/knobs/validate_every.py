"""Validate every so many training batches.

What it does
    Sets the trainer's own option: `val_check_interval` (Lightning), `eval_steps` (Hugging Face Trainer), the
    training loop's `val_interval` (mmengine, which validates after whole epochs where it trains by epochs: the
    nearest number of epochs is taken).
When it helps
    `validate` takes a large share of the run.
What it costs
    A best checkpoint and an early stop are decided on fewer measurements, a plateau is noticed later.
Numerics
    Validation that draws random numbers moves the random state of what follows; schedules that follow a validated
    figure are asked more rarely. Otherwise the same.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics, TrainerKnob
from hotlap.ports.values import Whole


class ValidateEvery(TrainerKnob):
    id = "validate-every"
    relieves = frozenset({Cause.VALIDATION_HEAVY})
    numerics = Numerics.STATISTICAL
    values = Whole(1, 10_000_000)
    promise = (0.1, 0.2)
    stage = Stage.VALIDATE
    absent = "the script validates by itself, in a loop of its own: validate every so many steps there"

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        return self.rarer(timeline, 4)
