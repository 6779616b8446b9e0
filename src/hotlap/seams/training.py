"""What training does in this process: optimizers that are built, backward passes and steps. Others listen here."""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hotlap.ports.target import Layer, Seam, Undo
from hotlap.ports.unseen import unseen
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter

_is_compiling = torch.compiler.is_compiling


class Training:
    """Installed before the probe's taps, which put back what they found when the compiler has run.

    `backward` are layers around `torch.autograd.backward`, the last one outermost.
    """

    def __init__(self) -> None:
        self.optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.built: list[Callable[[], None]] = []
        self.backward: list[Layer] = []
        self.in_backward = False
        self.step_begins: list[Callable[[Any], None]] = []
        self.step_ends: list[Callable[[Any], None]] = []
        self._made: Counter[int] = Counter()
        self._begun: set[int] = set()

    @property
    def steps(self) -> int:
        """Made by the optimizer that steps most often."""
        return max(self._made.values(), default=0)

    def stepped(self, optimizer: Any) -> bool:
        return bool(self._made[id(optimizer)])

    def listen(self, fitter: Fitter) -> None:
        fitter.meets[Seam.OPTIMIZER].append(self._met)
        fitter.wrap(Optimizer, "__init__", self._around_build)
        fitter.wrap(torch.autograd, "backward", self._around_backward)
        fitter.patches.keep(register_optimizer_step_pre_hook(self._step_begins).remove)
        fitter.patches.keep(register_optimizer_step_post_hook(self._step_ends).remove)

    def _around_build(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            self._met(optimizer)

        return built

    def _met(self, optimizer: Any) -> None:
        self.optimizers.add(optimizer)
        for listener in [*self.built]:
            boundary.attempt(listener)

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def passed(*args: Any, **kwargs: Any) -> Any:
            if (
                _is_compiling() or self.in_backward
            ):  # reentrant checkpoints pass back inside of a backward pass
                return original(*args, **kwargs)
            self.in_backward = True
            try:
                return layered(original, self.backward)(*args, **kwargs)
            finally:
                self.in_backward = False

        return passed

    def _step_begins(self, optimizer: Any, *_: Any) -> None:
        if not _is_compiling():
            self._begun.add(id(optimizer))
            for listener in self.step_begins:
                boundary.attempt(listener, optimizer)

    def _step_ends(self, optimizer: Any, *_: Any) -> None:
        if not _is_compiling() and id(optimizer) in self._begun:
            self._begun.discard(id(optimizer))  # a step around `super().step()` ends twice and is one
            self._made[id(optimizer)] += 1
            for listener in [*self.step_ends]:
                boundary.attempt(listener, optimizer)


def layered(call: Callable[..., Any], layers: list[Layer]) -> Callable[..., Any]:
    """`call` with these layers around it, the last one outermost."""
    for layer in layers:
        call = functools.partial(unseen(layer), call)
    return call


def kept(listeners: list[Any], listener: Any) -> Undo:
    """Add a listener; the result takes it away, once."""
    listeners.append(listener)

    def undo() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return undo
