"""Keep monitoring within a share of the training time.

What it does
    Times the callbacks that the user gave to the trainer, and leaves out calls of those that come with each batch
    as long as, all together, they take more than the share. Callbacks of the framework itself (checkpoints, progress
    bars, early stopping, learning-rate monitors) are never left out, nor what comes with an epoch, a validation or
    the start and the end of training.
When it helps
    Weight histograms, gradient norms or plots with every batch take a noticeable part of the run.
What it costs
    What is monitored is monitored more rarely; a callback that counts batches by itself counts only those it saw.
Numerics
    Statistical: a callback may do anything, change a learning rate for example.
"""

from __future__ import annotations

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Numerics
from hotlap.ports.trainer_knob import TrainerKnob
from hotlap.ports.values import Share


class MonitorBudget(TrainerKnob):
    id = "monitor-budget"
    relieves = frozenset({Cause.MONITORING_HEAVY})
    numerics = Numerics.STATISTICAL
    values = Share()
    stage = Stage.OTHER
    absent = "the script monitors by itself, in a loop of its own: do so every so many steps there"

    def settings(self, host: Host, timeline: Timeline) -> tuple[float, ...]:
        return (0.02,) if timeline.runtime.framework in ("lightning", "hf-trainer") else ()
