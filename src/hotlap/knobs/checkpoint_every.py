"""Save a checkpoint every so many steps.

What it does
    Sets the trainer's own option: `every_n_train_steps` of ModelCheckpoint (Lightning), `save_steps` (Hugging Face
    Trainer), the interval of `CheckpointHook` (mmengine).
When it helps
    `checkpoint` takes a noticeable share of the run.
What it costs
    A crash loses the steps since the last one.
Numerics
    None: what is trained does not change.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics, TrainerKnob
from hotlap.ports.values import Whole


class CheckpointEvery(TrainerKnob):
    id = "checkpoint-every"
    relieves = frozenset({Cause.CHECKPOINT_HEAVY})
    numerics = Numerics.BITWISE
    values = Whole(1, 10_000_000)
    stage = Stage.CHECKPOINT
    absent = "the script saves by itself, in a loop of its own: save every so many steps there"

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        return self.rarer(timeline, 4)
