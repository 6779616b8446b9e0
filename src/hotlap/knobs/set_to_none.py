"""Drop gradients instead of filling them with zeros.

What it does
    Makes each `zero_grad()` behave as `zero_grad(set_to_none=True)`, torch's default since 2.0. A parameter that had a
    gradient and gets none before the step is given zeros then, so the optimizer sees what it saw.
When it helps
    A script that asks for `set_to_none=False`: one pass over the gradients is saved, and backward writes them
    instead of adding.
What it costs
    Nothing. A script that reads `.grad` right after `zero_grad()` finds None.
Numerics
    None.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo, together
from hotlap.ports.values import Flag


class SetToNone(Knob):
    id = "set-to-none"
    relieves = frozenset({Cause.OPTIMIZER_UNFUSED})
    seam = Seam.PROCESS
    numerics = Numerics.BITWISE
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        """Nothing that was seen says how a script zeroes; torch's default is the fast way."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.OPTIMIZER)

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        if not setting:
            return lambda: None
        owed = _Owed()
        undo: list[Undo] = [owed.settle]
        undo += [
            target.patches.wrap(owner, "zero_grad", owed.around)
            for owner in (torch.optim.Optimizer, torch.nn.Module)
        ]
        undo.append(register_optimizer_step_pre_hook(owed.pay).remove)
        return together(undo)


class _Owed:
    """Parameters that had a gradient when it was dropped, though the script wanted zeros."""

    def __init__(self) -> None:
        from torch.utils.weak import WeakIdKeyDictionary

        self.parameters: Any = WeakIdKeyDictionary()

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        @functools.wraps(original)
        def zero_grad(owner: Any, set_to_none: bool = True) -> Any:
            if not set_to_none and not torch.compiler.is_compiling():
                self.parameters.update((each, True) for each in _parameters(owner) if each.grad is not None)
            return original(owner, set_to_none=True)

        return zero_grad

    def pay(self, optimizer: Any, *_: Any) -> None:
        if self.parameters:
            _fill([each for each in _parameters(optimizer) if each in self.parameters])

    def settle(self) -> None:
        """Gradients as the script's own `zero_grad` would have left them."""
        _fill(list(self.parameters.keys()))
        self.parameters.clear()


def _fill(parameters: list[Any]) -> None:
    import torch

    for each in parameters:
        if each.grad is None:
            each.grad = torch.zeros_like(each)


def _parameters(owner: Any) -> list[Any]:
    if hasattr(owner, "param_groups"):
        return [each for group in owner.param_groups for each in group["params"]]
    return list(owner.parameters())
