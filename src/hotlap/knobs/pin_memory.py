"""Pin host memory so that batches reach the GPU asynchronously.

What it does
    Builds every DataLoader with `pin_memory=True`, so that `.to(device, non_blocking=True)` returns before the copy
    ends.
When it helps
    `transfer` is exposed although `data` keeps up.
What it costs
    Page-locked memory: batch bytes x prefetch x workers, and a thread that copies each batch into it.
Numerics
    None: the same bytes arrive.
"""

from __future__ import annotations

from hotlap.cost.reading import training_loader
from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Loader, Seam, Undo
from hotlap.ports.values import Flag


class PinMemory(Knob):
    id = "pin-memory"
    relieves = frozenset({Cause.TRANSFER_EXPOSED})
    seam = Seam.LOADER
    numerics = Numerics.BITWISE
    values = Flag()
    live = True
    promise = (0.0, 0.2)

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        found = training_loader(timeline)
        if not (host.gpus or timeline.on_accelerator) or found is None or found[1].pin_memory:
            return ()
        return (True,)

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.TRANSFER) if self.settings(host, timeline) else 0.0

    def apply(self, target: Loader, setting: bool) -> Undo:
        import torch

        if setting and not torch.accelerator.is_available():
            raise CannotActError("this host has no accelerator that batches are copied to")
        return target.change(pin_memory=setting)
