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

import functools
import os
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Choice


class SyncBatchNorm(Knob):
    id = "sync-batchnorm"
    relieves = frozenset({Cause.LAUNCH_BOUND})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Choice(("off",))

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        """None of its own: a timeline does not tell whether a model was converted."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0

    def apply(self, target: Process, setting: str) -> Undo:
        import torch

        return target.patches.wrap(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", _around)


def _around(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def convert_sync_batchnorm(kind: type, module: Any, *args: Any, **kwargs: Any) -> Any:
        if _ranks() == 1 or not _has_batch_norm(module):
            return module
        return original(kind, module, *args, **kwargs)

    return convert_sync_batchnorm


def _ranks() -> int:
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE") or 1)


def _has_batch_norm(module: Any) -> bool:
    from torch.nn.modules.batchnorm import _BatchNorm

    return any(isinstance(each, _BatchNorm) for each in module.modules())
