"""Copy batches to the GPU while the host goes on.

What it does
    Makes `tensor.to(device)` and `tensor.cuda()` copy with `non_blocking=True` where the tensor lies in pinned memory
    and the script does not say otherwise. All other copies stay as they are.
When it helps
    `transfer` is exposed, and batches come from pinned memory (see `pin-memory`).
What it costs
    A script that writes into the pinned tensor right after it was copied would race with the copy. Batches of a
    DataLoader are not written to.
Numerics
    None: the same bytes arrive, and the device waits for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo
from hotlap.ports.values import Flag


class NonBlocking(Knob):
    id = "non-blocking"
    relieves = frozenset({Cause.TRANSFER_EXPOSED})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if host.gpus and timeline.loaders else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.TRANSFER) if self.settings(host, timeline) else 0.0

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch

        if not setting:
            raise CannotActError("a copy that the script asked to be asynchronous is left so")
        if not torch.cuda.is_available():
            raise CannotActError("this host has no CUDA device that batches are copied to")
        undos = [target.patches.wrap(torch.Tensor, name, around(name)) for name in ("to", "cuda")]

        def undo() -> None:
            for each in undos:
                each()

        return undo


def around(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper of `Tensor.to` or `Tensor.cuda`."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        is_compiling, dtype = torch.compiler.is_compiling, torch.dtype

        @functools.wraps(original)
        def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Models cast in many places of their forward: those calls should cost next to nothing.
            if is_compiling() or (args and type(args[0]) is dtype):
                return original(self, *args, **kwargs)
            if to_cuda(self, name, args, kwargs):
                kwargs["non_blocking"] = True
            return original(self, *args, **kwargs)

        return moved

    return wrap


def to_cuda(tensor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is a copy from pinned memory to CUDA that the script leaves to block."""
    if tensor.device.type != "cpu" or "non_blocking" in kwargs or any(isinstance(a, bool) for a in args):
        return False
    if name == "to" and not _names_cuda(args[0] if args else kwargs.get("device", kwargs.get("other"))):
        return False
    return bool(tensor.is_pinned())


def _names_cuda(where: Any) -> bool:
    import torch

    if isinstance(where, torch.Tensor):
        where = where.device
    if isinstance(where, torch.device):
        return where.type == "cuda"
    # A number alone is a device of the current accelerator.
    return isinstance(where, int) or (isinstance(where, str) and where.startswith("cuda"))
