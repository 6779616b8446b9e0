"""Copy batches to the device while the host goes on.

What it does
    Makes `tensor.to(device)` and `tensor.cuda()` (or `.xpu()`) copy with `non_blocking=True` where the tensor lies in
    pinned memory and the script does not say otherwise. All other copies stay as they are.
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

_ON_HOST = ("cpu", "meta")


class NonBlocking(Knob):
    id = "non-blocking"
    relieves = frozenset({Cause.TRANSFER_EXPOSED})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if (host.gpus or timeline.on_accelerator) and timeline.loaders else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.TRANSFER) if self.settings(host, timeline) else 0.0

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch

        from hotlap.probe.accelerator import accelerator

        if not setting:
            raise CannotActError("a copy that the script asked to be asynchronous is left so")
        device = accelerator()
        if device is None:
            raise CannotActError("torch sees no device here that batches are copied to")
        names = [name for name in dict.fromkeys(("to", "cuda", device.kind)) if hasattr(torch.Tensor, name)]
        undos = [target.patches.wrap(torch.Tensor, name, around(name)) for name in names]

        def undo() -> None:
            for each in undos:
                each()

        return undo


def around(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A wrapper of `Tensor.to`, `Tensor.cuda` or the like."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        is_compiling, dtype = torch.compiler.is_compiling, torch.dtype

        @functools.wraps(original)
        def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
            # Models cast in many places of their forward: those calls should cost next to nothing.
            if is_compiling() or (args and type(args[0]) is dtype):
                return original(self, *args, **kwargs)
            if goes_to_device(self, name, args, kwargs):
                kwargs["non_blocking"] = True
            return original(self, *args, **kwargs)

        return moved

    return wrap


def goes_to_device(tensor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether this is a copy from pinned memory to a device that the script leaves to block."""
    if tensor.device.type != "cpu" or "non_blocking" in kwargs or any(isinstance(a, bool) for a in args):
        return False
    if name == "to" and not _names_device(args[0] if args else kwargs.get("device", kwargs.get("other"))):
        return False
    return bool(tensor.is_pinned())


def _names_device(where: Any) -> bool:
    import torch

    if isinstance(where, torch.Tensor):
        where = where.device
    if isinstance(where, torch.device):
        return where.type not in _ON_HOST
    # A number alone is a device of the current accelerator.
    return isinstance(where, int) or (isinstance(where, str) and not where.startswith(_ON_HOST))
