"""Compute in float32 what the model computes in float64.

What it does
    Stores the float64 parameters and buffers of the model as float32, with what optimizers keep for them, and casts
    float64 arguments of its calls. A model that is all float64 returns float64 as before, so that a loss outside of
    it is computed as before. If the first forward does not bear it, all is put back and that forward is redone.
When it helps
    NumPy's float64 came into the model by a `.double()` or a buffer, and nobody asked for 16 digits: it moves twice
    the bytes and fills half of the vector units. Most GPUs compute float64 at a thirty-second of the speed or less.
What it costs
    Checkpoints hold float32 under the same keys; a float64 model loads them. A copy of the parameters that the
    script made before, as for a moving average, stays float64.
Numerics
    Results differ by rounding, 7 decimal digits instead of 16.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Reach, Seam, Undo, together
from hotlap.ports.values import Flag

_EXCHANGING = frozenset(
    {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DeepSpeedEngine"}
)


class SinglePrecision(Knob):
    id = "single-precision"
    relieves = frozenset({Cause.FLOAT64_COMPUTE})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if timeline.model is not None and "float64" in timeline.model.dtypes else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        if not self.settings(host, timeline):
            return 0.0
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Model, setting: bool) -> Undo:
        if not setting:
            return lambda: None
        held = _Doubles(target.module, target.reach)
        _refuse(target.module, held)
        calls = _Calls(returns_double=held.are_all)
        held.make_single()
        return together(
            [
                held.make_double,
                target.reach.around(target.module, calls),
                target.reach.first_forward(target.module, self.id, off=False),
                calls.end,
            ]
        )


def _refuse(module: Any, held: _Doubles) -> None:
    if not held.tensors:
        raise CannotActError("none of its parameters and buffers is float64")
    kinds = {kind.__name__ for each in module.modules() for kind in type(each).__mro__}
    if kinds & _EXCHANGING and any(each.requires_grad for each, _ in held.alive()):
        raise CannotActError("the exchange of its float64 gradients between ranks is laid out already")


class _Doubles:
    """The float64 tensors of a module. Of those that do not train, the values are kept for the way back."""

    def __init__(self, module: Any, reach: Reach) -> None:
        import torch

        floats = [each for each in _state(module) if each.is_floating_point()]
        doubles = [each for each in floats if each.dtype is torch.float64]
        self.are_all = len(doubles) == len(floats)
        self.tensors = [
            (weakref.ref(each), None if each.requires_grad else each.detach()) for each in doubles
        ]
        self.module, self.reach = weakref.ref(module), reach

    def alive(self) -> Iterator[tuple[Any, Any]]:
        for held, before in self.tensors:
            if (tensor := held()) is not None:
                yield tensor, before

    def make_single(self) -> None:
        import torch

        for tensor, _ in self.alive():
            self._cast(tensor, tensor.data.float(), torch.float64, torch.float32)
        self._flatten()

    def make_double(self) -> None:
        import torch

        for tensor, before in self.alive():
            same = before is not None and tensor.data.equal(before.float())
            self._cast(tensor, before if same else tensor.data.double(), torch.float32, torch.float64)
        self._flatten()

    def _cast(self, tensor: Any, values: Any, before: Any, after: Any) -> None:
        gradient, tensor.grad = tensor.grad, None
        tensor.data = values
        if gradient is not None:
            tensor.grad = gradient.to(after)
        for optimizer in self.reach.optimizers():
            state = optimizer.state.get(tensor, {})
            for key, value in state.items():
                if getattr(value, "dtype", None) is before and value.shape == tensor.shape:
                    state[key] = value.to(after)

    def _flatten(self) -> None:
        """Recurrent layers on a GPU want their weights in one piece again."""
        from torch import nn

        module = self.module()
        for each in module.modules() if module is not None else ():
            if isinstance(each, nn.RNNBase):
                each.flatten_parameters()


def _state(module: Any) -> list[Any]:
    from torch.nn.parameter import is_lazy

    return [each for each in (*module.parameters(), *module.buffers()) if not is_lazy(each)]


class _Calls:
    """A layer that casts arguments to float32, and results back where all of the model was float64."""

    def __init__(self, *, returns_double: bool) -> None:
        self.casts, self.returns_double = True, returns_double

    def end(self) -> None:
        """A call that is under way, as one that is redone, may still come through here."""
        self.casts = False

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        import torch

        if not self.casts:
            return call(*args, **kwargs)
        args, kwargs = _cast_all((args, kwargs), torch.float64, torch.float32)
        result = call(*args, **kwargs)
        return _cast_all(result, torch.float32, torch.float64) if self.returns_double else result


def _cast_all(value: Any, before: Any, after: Any) -> Any:
    """New containers where something in them was cast: those of the script stay as they are."""
    import torch
    from torch.utils._pytree import tree_map_only

    def cast(tensor: Any) -> Any:
        return tensor.to(after) if tensor.dtype is before else tensor

    return tree_map_only(torch.Tensor, cast, value)
