"""Log every so many steps.

What it does
    Sets the trainer's own option: `log_every_n_steps` (Lightning), `logging_steps` (Hugging Face Trainer), the
    interval of `LoggerHook` (mmengine).
When it helps
    `log` takes a noticeable share of the step, or reading figures back makes the host wait for the device.
What it costs
    Coarser curves.
Numerics
    None: what is trained does not change.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics, TrainerKnob
from hotlap.ports.values import Whole


class LogEvery(TrainerKnob):
    id = "log-every"
    relieves = frozenset({Cause.LOGGING_HEAVY, Cause.HOST_SYNC})
    numerics = Numerics.BITWISE
    values = Whole(1, 1_000_000)
    promise = (0.05, 0.1)
    stage = Stage.LOG
    absent = "the script writes its log by itself, in a loop of its own: log every so many steps there"

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        return self.rarer(timeline, 10)
