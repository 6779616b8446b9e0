"""Compute the model's forward and backward in 16 bits where that is safe.

What it does
    Runs each call of the root module under autocast and casts what it returns back to float32, so that a loss
    outside of the model is computed as before. `16-mixed` also scales the loss up before backward and the gradients
    down after it, and leaves out steps whose gradients overflow. `32` turns a script's own autocast off.
When it helps
    Forward and backward hold most of the step, on a GPU with tensor cores or a CPU with AMX or AVX512-BF16.
What it costs
    Range or digits of activations. `16-mixed` waits for the device once a step, as torch's GradScaler does. On a
    CPU without such units it is slower than float32.
Numerics
    Results differ by the rounding of 8 (bf16) or 11 (fp16) binary digits: the same model within noise, not the same
    bits. A loss that is not finite steps down to bf16 and then to 32 bits.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Seam, Undo, together
from hotlap.ports.unseen import unseen
from hotlap.ports.values import Choice

_SPELLINGS = {"fp32": "32", "bf16": "bf16-mixed", "fp16": "16-mixed", "16": "16-mixed"}
_SHARDED = frozenset({"FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine"})


class Precision(Knob):
    id = "precision"
    relieves = frozenset({Cause.PRECISION_UNUSED, Cause.PRECISION_INEFFECTIVE})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    values = Choice(("32", "16-mixed", "bf16-mixed"), _SPELLINGS)
    live = True
    promise = (0.2, 1.0)

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        """What the hardware has units for; `32` where a script autocasts without them."""
        has = _gpu_has(host) if timeline.on_accelerator else _cpu_has(host)
        if timeline.runtime.autocast:
            return () if has else ("32",)
        return has

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Model, setting: str) -> Undo:
        import torch

        device = next(target.module.parameters()).device.type
        autocasts = target.autocasts or torch.is_autocast_enabled(device)
        if setting == "32":
            if not autocasts:
                raise CannotActError("it computes in 32 bits already, as far as can be seen from outside")
            return _turned_off(target, device)
        _refuse(target.module, setting, autocasts)
        dtype = torch.float16 if setting == "16-mixed" else torch.bfloat16
        undo = [_autocast(target, device, dtype)]
        if setting == "16-mixed":
            undo.append(target.reach.scale_gradients())
        return together(undo)


def _gpu_has(host: Host) -> tuple[str, ...]:
    if not any(gpu.tensor_cores for gpu in host.gpus):
        return ()
    return ("bf16-mixed", "16-mixed") if any(gpu.bf16 for gpu in host.gpus) else ("16-mixed",)


def _cpu_has(host: Host) -> tuple[str, ...]:
    return ("bf16-mixed",) if host.cpu_bf16 or host.cpu_amx else ()


def _refuse(module: Any, setting: str, autocasts: bool) -> None:
    if autocasts:
        raise CannotActError("the script runs it under autocast already")
    low = {str(each.dtype) for each in module.parameters() if each.dtype.itemsize == 2}
    if low:
        raise CannotActError(f"its parameters are {', '.join(sorted(low))} already")
    kinds = {kind.__name__ for each in module.modules() for kind in type(each).__mro__}
    if setting == "16-mixed" and kinds & _SHARDED:
        raise CannotActError(
            "each rank of a sharded model would find other gradients that overflow; bf16-mixed can"
        )


def _turned_off(target: Model, device: str) -> Undo:
    import torch

    def full(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(device, enabled=False):
            return call(*args, **kwargs)

    return target.reach.around(target.module, full)


def _autocast(target: Model, device: str, dtype: Any) -> Undo:
    import torch

    reach = target.reach
    inside = _OwnAutocast()

    def mixed(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if torch.is_autocast_enabled(device):
            return call(*args, **kwargs)
        with torch.autocast(device, dtype=dtype):
            result = call(*args, **kwargs) if inside.known else inside.watched(call, args, kwargs)
        if inside.found:
            undo()
            reach.withdraw(Precision.id, "the script autocasts inside of its forward already")
        return in_float32(result)

    mixed.autocast = str(dtype).removeprefix("torch.")  # type: ignore[attr-defined]  # for the probe
    undo = reach.around(target.module, mixed)
    return undo


class _OwnAutocast:
    """Whether the script enters autocast inside of a forward, found out at the first one."""

    def __init__(self) -> None:
        self.known = self.found = False

    @unseen
    def watched(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        import torch

        original = torch.autocast.__enter__

        @functools.wraps(original)
        def entered(context: Any) -> Any:
            self.found |= context._enabled
            return original(context)  # type: ignore[no-untyped-call]

        self.known = True
        torch.autocast.__enter__ = entered  # type: ignore[method-assign]
        try:
            return call(*args, **kwargs)
        finally:
            torch.autocast.__enter__ = original  # type: ignore[method-assign]


def in_float32(value: Any) -> Any:
    """With every 16-bit tensor in it cast to float32; containers stay what they are."""
    import torch

    if isinstance(value, torch.Tensor):
        low = value.dtype in (torch.float16, torch.bfloat16)
        return value.float() if low else value
    if isinstance(value, tuple):
        cast = [in_float32(each) for each in value]
        return type(value)(*cast) if hasattr(value, "_fields") else type(value)(cast)
    if isinstance(value, list):
        value[:] = [in_float32(each) for each in value]
    elif isinstance(value, dict):
        for key, each in list(value.items()):
            value[key] = in_float32(each)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            object.__setattr__(value, field.name, in_float32(getattr(value, field.name)))
    return value
