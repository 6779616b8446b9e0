"""Take several batches for one optimizer step.

What it does
    Each optimizer step takes N times as many batches as the script alone would give it: the loss counts 1/N, and
    `optimizer.step()`, clipping, the scheduler and `zero_grad()` wait for the last of them. Together with a
    batch-size divided by N the effective batch stays as it was. Frameworks that accumulate by themselves are told
    to take N times as many.
When it helps
    A batch does not fit into memory, or a larger effective batch is wanted than fits. With several ranks, gradients
    are exchanged more rarely where the framework does so.
What it costs
    Smaller batches use the device less well. A script that counts its own iterations counts the small ones. In a loop
    of one's own, N batches may begin in one epoch and end in the next, and up to N-1 at the very end have no step.
Numerics
    Of a loss that is a mean, the same up to rounding, unless layers look at the whole batch (BatchNorm) or draw
    random numbers for it (dropout). A loss that is a sum must not be scaled: leave this knob alone there.
"""

from __future__ import annotations

from typing import Any

from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Seam, Step, Undo
from hotlap.ports.values import Whole


class Accumulate(Knob):
    id = "accumulate"
    relieves = frozenset()
    seam = Seam.STEP
    numerics = Numerics.STATISTICAL
    values = Whole(1, 1024)

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """None: it buys memory, not time. The ladder and the user set it."""
        return ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return 0.0

    def apply(self, target: Step, setting: int) -> Undo:
        _refuse_what_does_not_add_up(target)
        counting = _Counting(target, setting)
        undos = [target.skip_optimizer(counting.leaves_out), target.scale_loss(counting.share)]
        target.growth[self.id] = float(setting)

        def undo() -> None:
            for each in undos:
                each()
            target.growth.pop(self.id, None)

        return undo


def _refuse_what_does_not_add_up(target: Step) -> None:
    from torch.optim import LBFGS

    if not target.optimizers:
        raise CannotActError("the script updates its parameters without an optimizer of torch")
    if len(target.optimizers) > 1:
        raise CannotActError(
            f"the script has {len(target.optimizers)} optimizers, and the gradients of one would run into another's"
        )
    if any(isinstance(each, LBFGS) for each in target.optimizers):
        raise CannotActError("LBFGS evaluates one batch several times within a step")


class _Counting:
    """Which attempted step is made: each N-th. Makes sure that gradients do add up in between."""

    def __init__(self, target: Step, every: int) -> None:
        self._target = target
        self._every = every
        self._attempts = 0
        self._sure = False

    def leaves_out(self) -> bool:
        self._attempts += 1
        return self._attempts % self._every != 0

    def share(self) -> float:
        if not self._sure and self._target.holds:
            self._sure = True
            if not _some_gradient(self._target.optimizers):
                self._target.withdraw(
                    "accumulate", "the script clears its gradients itself, not by zero_grad()"
                )
                return 1.0
        return 1.0 / self._every


def _some_gradient(optimizers: Any) -> bool:
    grads = (p.grad for each in optimizers for group in each.param_groups for p in group["params"])
    return any(grad is not None and bool((grad != 0).any()) for grad in grads)
