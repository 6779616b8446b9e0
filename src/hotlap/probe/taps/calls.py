"""Counts calls of leaf modules and operators of the graph in a few of the first steps: many small ones, or few large?

A global forward hook of torch does it, and only meanwhile: nothing is left on any module that could be saved or copied.
Where the compiler is at work nothing is counted, since it would have to compile again without the hook. What an
operator takes that has nothing to compute is measured after the window.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.nn import GELU, LayerNorm, Linear, Module, Sequential
from torch.nn.modules.module import _has_any_global_hook, register_module_forward_pre_hook

from hotlap.probe.epilogue import Epilogue
from hotlap.probe.session import Session, now

_AFTER, _STEPS = 2, 2  # two steps, since a script with two optimizers makes two of them a step
_MOST_OPERATORS = 20_000  # of a graph: more are as many as any question needs
_REPEATS, _QUICK = 60, 6  # runs through the small graph, and which of the quickest stands for them
_LAYERS, _ROWS, _WIDTH = 8, 4, 8


class CallsTap:
    """Counts from the end of the second step to the end of the fourth."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = 0
        self._calls = 0
        self._operators = 0
        self._hook: Any = None

    def step_ended(self) -> bool:
        self._steps += 1
        if self._steps == _AFTER and not self._session.facts.get("compiles"):
            self._hook = register_module_forward_pre_hook(self._count)
            self._session.backward_begins.append(self.backward_begins)
        elif self._steps == _AFTER + _STEPS and self._hook is not None:
            self.stop()
            self._session.note("calls_per_optimizer_step", self._calls / _STEPS)
            self._session.note("operators_per_optimizer_step", self._operators / _STEPS)
        return self._steps < _AFTER + _STEPS

    def stop(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def backward_begins(self, tensors: Any) -> bool:
        if self._hook is not None:
            self._operators += operators_behind(tensors)
        return self._hook is not None

    def measure_operator(self) -> None:
        if self._operators and not _hooked():
            self._session.note("operator_ns", smallest_operator_ns())

    def _count(self, module: Module, _: Any) -> None:
        if not module._modules and torch.is_grad_enabled():
            self._calls += 1


def _hooked() -> bool:
    """Whether the script has hooks on every module: they must not see ours."""
    return bool(_has_any_global_hook())  # type: ignore[no-untyped-call]


def operators_behind(tensors: Any) -> int:
    """Operators of the graph that backward will walk, without the leaves that only take gradients."""
    ends: Iterable[torch.Tensor] = [tensors] if isinstance(tensors, torch.Tensor) else tensors
    pending: list[Any] = [tensor.grad_fn for tensor in ends]
    met: set[Any] = set()
    while pending and len(met) < _MOST_OPERATORS:
        node = pending.pop()
        if node is not None and node not in met and node.next_functions:
            met.add(node)
            pending += [follower for follower, _ in node.next_functions]
    return len(met)


def smallest_operator_ns() -> int:
    """Forward and backward of one operator on a handful of numbers; of a quick run, as a busy machine slows others.

    Layers as models have them, called as modules: bare functions would leave out what a module's call costs.
    """
    with torch.random.fork_rng(devices=()):  # initial weights are drawn
        layers = [
            layer for _ in range(_LAYERS) for layer in (Linear(_WIDTH, _WIDTH), LayerNorm(_WIDTH), GELU())
        ]
    model, rows = Sequential(*layers), torch.ones(_ROWS, _WIDTH)
    parameters = tuple(model.parameters())
    times, operators = [], 1
    with torch.enable_grad():
        for _ in range(_REPEATS):
            started = now()
            loss = model(rows).sum()
            torch.autograd.grad(loss, parameters, retain_graph=True)
            times.append(now() - started)
            operators = operators_behind(loss)
    return sorted(times)[_QUICK] // operators


def install(session: Session, epilogue: Epilogue) -> None:
    tap = CallsTap(session)
    session.step_ends.append(tap.step_ended)
    session.compile_begins.append(tap.stop)
    epilogue.last_acts.append(tap.measure_operator)
    session.on_detach(tap.stop)
