"""Sees the backward passes and optimizer steps of this process, whichever framework makes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from hotlap.probe import boundary
from hotlap.seams.patches import Patches

Seen = Callable[[Tensor | None, Callable[[], Sequence[Tensor]]], None]


class Hooks:
    """Calls `seen(loss, parameters)` after each step of the optimizer that steps most often.

    The loss is that of the last backward pass before the step, as it was before a gradient scaler.
    """

    def __init__(self, seen: Seen) -> None:
        self.passes = 1  # backward passes of the last step: gradients may be accumulated
        self._passes = 0
        self._call = seen
        self._loss: Tensor | None = None
        self._scaled: tuple[int, Tensor] | None = None
        self._made: dict[int, int] = {}
        self._most = 0
        self._is_compiling = torch.compiler.is_compiling
        self._patches = Patches()
        self._patches.keep(register_optimizer_step_post_hook(self._stepped).remove)
        self._patches.wrap(torch.autograd, "backward", self._around_backward)
        self._patches.wrap(torch.amp.GradScaler, "scale", self._around_scale)

    def remove(self) -> None:
        self._patches.undo_all()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling():
            return
        made = self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        if made > self._most:
            self._most = made
            loss, self._loss = self._loss, None
            self.passes, self._passes = max(1, self._passes), 0
            boundary.attempt(self._call, loss, functools.partial(_parameters, optimizer))

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def passed(*args: Any, **kwargs: Any) -> Any:
            if not self._is_compiling():
                boundary.attempt(self._take, args[0] if args else kwargs.get("tensors"))
            return original(*args, **kwargs)

        return passed

    def _take(self, tensors: Any) -> None:
        self._passes += 1
        loss = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
        if self._scaled is not None and self._scaled[0] == id(loss):
            loss = self._scaled[1]
        self._scaled = None
        self._loss = loss.detach() if isinstance(loss, Tensor) and loss.numel() == 1 else None

    def _around_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The scale changes by itself, and would look like a jump of the loss."""

        @functools.wraps(original)
        def scaled(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if isinstance(outputs, Tensor):
                self._scaled = (id(result), outputs.detach())
            return result

        return scaled


def _parameters(optimizer: Any) -> list[Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]
