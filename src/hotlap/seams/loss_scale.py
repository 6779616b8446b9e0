"""Scales losses up before backward, so that small gradients survive in float16, and gradients down after it.

Gradients have their true size whenever the script can see them, so clipping, logging and accumulation are as
without it. What torch's GradScaler asks a script to call happens here at the backward pass and the step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from hotlap.ports.target import Undo
from hotlap.seams.training import Training, kept

# As torch's GradScaler has them.
FIRST_SCALE, GROWTH_EVERY = 2.0**16, 2000
LEAST_SCALE = 1.0  # below it gradients overflow although they are made smaller: no scale can mend that


class LossScale:
    """One for all models of a process: a loss may lead through several. A power of two: scaling loses no bit."""

    def __init__(self, training: Training, hopeless: Callable[[str], None]) -> None:
        self.scale = FIRST_SCALE
        self._training = training
        self._hopeless = hopeless
        self._users = 0
        self._off: list[Undo] = []
        self._extra: list[weakref.ref[Any]] = []  # parameters of models, which may be stepped by hand
        self._found: dict[int, dict[torch.device, torch.Tensor]] = {}  # by the optimizer's identity
        self._hidden: list[tuple[Any, torch.Tensor]] = []
        self._steady = 0
        self._judged = False
        self._stepping: Any = None

    def use(self, parameters: list[Any]) -> Undo:
        """For one model; the first starts the scaling, the last one to leave ends it."""
        self._users += 1
        self._extra += [weakref.ref(each) for each in parameters]
        if self._users == 1:
            training = self._training
            self._off = [
                kept(training.backward, self._backward),
                kept(training.step_begins, self._step_begins),
                kept(training.step_ends, self._step_ends),
            ]
        users = [True]

        def undo() -> None:
            if users:
                users.clear()
                self._leave()

        return undo

    def _leave(self) -> None:
        self._users -= 1
        if not self._users:
            self._extra.clear()
            for off in self._off:
                off()
            self._found.clear()
            self._stepping = None
            self._show()

    def _owners(self) -> list[tuple[int, list[Any]]]:
        """Parameters with a gradient to unscale, each once, by the optimizer that steps them."""
        met: set[int] = set()
        owners = []
        extra = [parameter for held in self._extra if (parameter := held()) is not None]
        for owner, parameters in (*self._owned(), (0, extra)):
            new = [each for each in parameters if id(each) not in met]
            met.update(map(id, new))
            owners.append((owner, new))
        return owners

    def _owned(self) -> list[tuple[int, list[Any]]]:
        return [(id(each), _parameters(each)) for each in self._training.optimizers]

    def _backward(
        self, call: Callable[..., Any], tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        owners = self._owners()
        self._judged = False
        self._scale_up([each for _, parameters in owners for each in parameters])
        try:
            return call(tensors, self._scaled(tensors, grad_tensors), *args, **kwargs)
        finally:
            for owner, parameters in owners:
                self._scale_down(owner, parameters)
            if self._stepping is not None:  # a closure: this backward runs inside of the step
                self._hide(self._stepping)

    def _scaled(self, tensors: Any, gradients: Any) -> Any:
        if isinstance(tensors, torch.Tensor):
            return self._seed(tensors, gradients)
        given = gradients if gradients is not None else [None] * len(tensors)
        return [self._seed(each, gradient) for each, gradient in zip(tensors, given, strict=True)]

    def _seed(self, tensor: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor:
        if gradient is None:
            return torch.full_like(tensor, self.scale, memory_format=torch.preserve_format)
        return gradient * self.scale

    def _scale_up(self, parameters: list[Any]) -> None:
        """Gradients that wait for more of them."""
        waiting = [_values(each.grad) for each in parameters if each.grad is not None]
        if waiting:
            with torch.no_grad():
                torch._foreach_mul_(waiting, self.scale)

    def _scale_down(self, owner: int, parameters: list[Any]) -> None:
        gradients = [_values(each.grad) for each in parameters if each.grad is not None]
        kinds = {(each.device, each.dtype) for each in gradients}
        with torch.no_grad():
            for device, dtype in kinds:
                found = self._found.setdefault(owner, {}).setdefault(device, torch.zeros((), device=device))
                inverse = torch.full((), 1.0 / self.scale, device=device)
                of_kind = [each for each in gradients if each.device == device and each.dtype == dtype]
                torch._amp_foreach_non_finite_check_and_unscale_(of_kind, found, inverse)

    def _step_begins(self, optimizer: Any) -> None:
        self._stepping = optimizer
        self._hide(optimizer)

    def _hide(self, optimizer: Any) -> None:
        """Like the GradScaler it waits for the device here. A step without gradients changes nothing."""
        found = self._found.get(id(optimizer), {})
        if not self._hidden and any(each.item() for each in found.values()):
            self._hidden = [(each, each.grad) for each in _parameters(optimizer) if each.grad is not None]
            for each, _ in self._hidden:
                each.grad = None

    def _step_ends(self, optimizer: Any) -> None:
        self._stepping = None
        if self._found.pop(id(optimizer), None) is None:
            return  # it had no new gradients, or this is a step inside its own step
        overflowed = bool(self._hidden)
        self._show()
        if not self._judged:  # once for each backward, whatever the number of optimizers
            self._judged = True
            self._adjust(overflowed)

    def _adjust(self, overflowed: bool) -> None:
        self._steady = 0 if overflowed else self._steady + 1
        if overflowed:
            self.scale /= 2
            if self.scale < LEAST_SCALE:
                self._hopeless("gradients overflow at every loss scale")
        elif self._steady >= GROWTH_EVERY:
            self._steady, self.scale = 0, self.scale * 2

    def _show(self) -> None:
        for each, gradient in self._hidden:
            each.grad = gradient
        self._hidden = []


def _values(gradient: torch.Tensor) -> torch.Tensor:
    return gradient._values() if gradient.is_sparse else gradient


def _parameters(optimizer: Any) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]
