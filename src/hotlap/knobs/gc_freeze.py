"""Keep garbage collection away from objects that stay.

What it does
    Collects once, then sets all objects that are alive apart (`gc.freeze()`), so that later collections, also those
    that the script asks for, walk over newer objects only, and raises the number of new objects that starts one.
    After the first optimizer steps, when the data set and the loader's iterators exist, it sets apart once more.
    Every 1,000 optimizer steps, and a minute apart at least, everything is collected in full.
When it helps
    Many Python objects live through the training, such as a data set of lists or dicts: each full collection walks
    over all of them.
What it costs
    Objects that refer to each other in a circle, and the tensors that they hold, are freed later.
Numerics
    None.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Flag

_NEW_OBJECTS = 10_000  # that start a collection of the youngest; Python's default is 700 to 2,000
_FIRST_STEPS = 5
_EVERY_STEPS, _EVERY_S = 1000, 60.0


class GcFreeze(Knob):
    id = "gc-freeze"
    relieves = frozenset({Cause.GC_PAUSES})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if timeline.pauses.count else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        seconds = summarise(timeline).seconds
        return min(1.0, timeline.pauses.seconds / seconds) if seconds else 0.0

    def apply(self, target: Process, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        if gc.get_freeze_count():
            raise CannotActError("the script has frozen its objects already")
        return _Frozen().begin()


class _Frozen:
    """Objects set apart from garbage collection, and the thresholds of Python's collector before."""

    def __init__(self) -> None:
        self._thresholds = gc.get_threshold()
        self._raised = max(_NEW_OBJECTS, self._thresholds[0]), *self._thresholds[1:]
        self._steps = 0
        self._collected_s = 0.0

    def begin(self) -> Undo:
        # Not the hook after a step: a search puts knobs in place there, while torch goes through those hooks.
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        if self._thresholds[0]:  # with 0 the script has turned collections off
            gc.set_threshold(*self._raised)
        self._set_apart()
        hook = register_optimizer_step_pre_hook(self._step_begins)

        def undo() -> None:
            hook.remove()
            gc.unfreeze()
            if gc.get_threshold() == self._raised:  # else the script has set others since
                gc.set_threshold(*self._thresholds)

        return undo

    def _step_begins(self, *_: Any) -> None:
        import torch

        if torch.compiler.is_compiling():
            return
        self._steps += 1
        if self._steps == _FIRST_STEPS:
            self._set_apart()
        elif self._steps % _EVERY_STEPS == 0 and time.monotonic() - self._collected_s > _EVERY_S:
            gc.unfreeze()  # what was set apart may be garbage by now
            self._set_apart()

    def _set_apart(self) -> None:
        gc.collect()
        gc.freeze()
        self._collected_s = time.monotonic()
