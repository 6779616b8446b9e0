"""Scale the learning rate with the batch of one optimizer step.

What it does
    Where batch-size and accumulate made the batch of a step k times as large, each step is made with the script's
    learning rate times k (`linear`) or times the square root of k (`sqrt`). Where it grew, the factor rises from 1
    during the first 200 steps. The rate is scaled for the duration of the step only, so that any schedule, warm-up
    or log of the script sees its own rate, and checkpoints hold it.
When it helps
    A larger batch means fewer steps for the same samples: `linear` suits SGD, `sqrt` Adam and its kin.
What it costs
    Nothing in time. How far a batch may grow before it trains worse is for the guard to say.
Numerics
    Statistical: other steps are made.
"""

from __future__ import annotations

from typing import Any

from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam, Step, Undo
from hotlap.ports.values import Choice

_WARM_UP_STEPS = 200
"""A large rate at the very start is what breaks large batches; a few hundred steps are the usual remedy."""
_POWERS = {"linear": 1.0, "sqrt": 0.5, "off": 0.0}


class ScaleLr(Knob):
    id = "scale-lr"
    relieves = frozenset()
    seam = Seam.STEP
    numerics = Numerics.STATISTICAL
    values = Choice(tuple(_POWERS))

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        """None of its own: it belongs to a changed batch."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0

    def apply(self, target: Step, setting: str) -> Undo:
        if setting == "off":
            return lambda: None
        if target.batch_growth() == 1:
            raise CannotActError("the batch of one optimizer step is as large as the script's own")
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        scaling = _Scaling(target, _POWERS[setting])
        hooks = [
            register_optimizer_step_pre_hook(scaling.before),
            register_optimizer_step_post_hook(scaling.after),
        ]

        def undo() -> None:
            for hook in hooks:
                hook.remove()
            scaling.restore_all()

        return undo

    def numerics_at(self, target: Any, setting: str) -> Numerics:
        return Numerics.BITWISE if setting == "off" else self.numerics


class _Scaling:
    """Holds the script's own rates while a step is made."""

    def __init__(self, target: Step, power: float) -> None:
        from torch.compiler import is_compiling

        self._is_compiling = is_compiling
        self._target = target
        self._power = power
        self._factor: float | None = None
        self._ramp = 0  # steps until the whole factor
        self._made = 0
        self._held: dict[
            int, tuple[dict[str, Any], Any, Any]
        ] = {}  # by group: it, its own rate, the scaled one

    def before(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling():
            return
        if self._factor is None:
            self._begin(optimizer)
        factor = self._factor_now()
        for group in optimizer.param_groups if factor != 1.0 else ():
            held = self._held.get(id(group))
            # A step inside a step (`super().step()`), or after one that raised, finds the rate scaled already.
            if held is None or held[2] is not group["lr"]:
                scaled = group["lr"] * factor
                self._held[id(group)] = (group, group["lr"], scaled)
                group["lr"] = scaled

    def after(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling():
            return
        if any(id(group) in self._held for group in optimizer.param_groups):
            self._made += 1
        self.restore(optimizer.param_groups)

    def restore(self, groups: Any) -> None:
        for each in groups:
            held = self._held.pop(id(each), None)
            if held is not None and held[0]["lr"] is held[2]:
                held[0]["lr"] = held[1]

    def restore_all(self) -> None:
        self.restore([held[0] for held in self._held.values()])

    def _begin(self, optimizer: Any) -> None:
        growth = self._target.batch_growth()
        self._factor = growth**self._power
        # A run that goes on from a checkpoint has its first steps behind it.
        fresh = not optimizer.state
        self._ramp = _WARM_UP_STEPS if growth > 1 and fresh else 0

    def _factor_now(self) -> float:
        factor = self._factor or 1.0
        if self._made >= self._ramp:
            return factor
        return 1.0 + (factor - 1.0) * (self._made + 1) / (self._ramp + 1)
