"""Whether backward passes without an optimizer's step are parts of one long step, or a script updates by hand.

Gradients may be accumulated over hundreds of batches. Meanwhile no parameter is written; torch counts writes, so that
one look at a parameter of each optimizer tells. Only asked until the first step of an optimizer.
"""

from __future__ import annotations

import weakref

from torch import Tensor
from torch.optim import Optimizer

_MOST = 4096  # backward passes: an optimizer that waits for so long is one that is never used


class Accumulation:
    """Knows the optimizers that were built."""

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._versions: list[int] = []
        self._passes = 0

    def built(self, optimizer: Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))

    def goes_on(self) -> bool:
        """Asked after each backward pass: whether it continues the step of the one before."""
        self._passes += 1
        before, self._versions = self._versions, self._look()
        return bool(before) and before == self._versions and self._passes <= _MOST

    def first_parameters(self) -> set[int]:
        """Identities of the first parameter that each optimizer trains."""
        return {id(each) for each in self._firsts()}

    def _look(self) -> list[int]:
        return [each._version for each in self._firsts()]

    def _firsts(self) -> list[Tensor]:
        alive = [optimizer for each in self._optimizers if (optimizer := each()) is not None]
        return [first for each in alive if (first := _first_of(each)) is not None]


def _first_of(optimizer: Optimizer) -> Tensor | None:
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return next((each for each in parameters if each.requires_grad), None)
