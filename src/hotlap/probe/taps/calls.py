"""Counts the calls of leaf modules during a few of the first steps, to tell many small operators from few large ones.

A global forward hook of torch does it, and only meanwhile: nothing is left on any module that could be saved or copied.
Where the compiler is at work nothing is counted, since it would have to compile again without the hook.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_pre_hook

from hotlap.probe.session import Session

_AFTER, _STEPS = 2, 2  # two steps, since a script with two optimizers makes two of them a step


class CallsTap:
    """Puts the hook in place after the second step and takes it away two steps later."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._steps = 0
        self._calls = 0
        self._hook: Any = None

    def step_ended(self) -> None:
        self._steps += 1
        if self._steps == _AFTER and not self._session.facts.get("compiles"):
            self._hook = register_module_forward_pre_hook(self._count)
        elif self._steps == _AFTER + _STEPS and self._hook is not None:
            self.stop()
            self._session.note("calls_per_optimizer_step", self._calls / _STEPS)

    def stop(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _count(self, module: Module, _: Any) -> None:
        if not module._modules and torch.is_grad_enabled():
            self._calls += 1


def install(session: Session) -> None:
    tap = CallsTap(session)
    session.step_ends.append(tap.step_ended)
    session.compile_begins.append(tap.stop)
    session.on_detach(tap.stop)
