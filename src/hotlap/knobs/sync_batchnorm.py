"""Do not synchronise BatchNorm where there is nobody to synchronise with.

What it does
    With `off`, `SyncBatchNorm.convert_sync_batchnorm` leaves a model alone that trains in one process, or that has
    no BatchNorm. With several ranks and BatchNorm in the model it converts as before.
When it helps
    A script written for several GPUs runs on one: the converted layers take a slower path there.
What it costs
    Nothing.
Numerics
    None: with one rank both kinds of layer compute the same.
"""

from __future__ import annotations

from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, NotMineError, Numerics
from hotlap.ports.target import Conversion, Seam, Undo
from hotlap.ports.values import Choice


class SyncBatchNorm(Knob):
    id = "sync-batchnorm"
    relieves = frozenset({Cause.LAUNCH_BOUND})
    seam = Seam.DISTRIBUTED
    numerics = Numerics.BITWISE
    values = Choice(("off",))
    absent = "the script converts no BatchNorm to SyncBatchNorm"

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        """None of its own: a timeline does not tell whether a model was converted."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0

    def apply(self, target: Any, setting: str) -> Undo:
        if not isinstance(target, Conversion):
            raise NotMineError
        if target.ranks > 1 and _has_batch_norm(target.module):
            raise CannotActError(f"{target.ranks} ranks share the statistics of its batches: they are needed")
        target.leave_out = True

        def undo() -> None:
            target.leave_out = False

        return undo


def _has_batch_norm(module: Any) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(each, _BatchNorm) for each in module.modules())
