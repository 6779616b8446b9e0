"""The tap on one root module. The compiler may trace through it, so it is as plain as can be."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from hotlap.ports.unseen import unseen
from hotlap.probe import boundary, marks
from hotlap.probe.accelerator import accelerator
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session

_ENTER, _LEAVE = marks.enter(Kind.FORWARD), marks.leave(Kind.FORWARD)
_ENTER_EVAL, _LEAVE_EVAL = marks.enter(Kind.EVAL_FORWARD), marks.leave(Kind.EVAL_FORWARD)
_now = time.perf_counter_ns


class RootTap:
    """Stands in the module's `_compiled_call_impl` and calls what would have been called.

    The module is held weakly: a tap must not keep a model alive that the script lets go.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        compiled: Callable[..., Any] | None,
        session: Session,
    ) -> None:
        self.module = weakref.ref(module)
        self.compiled = compiled
        self.session = session
        self.append = session.append
        self.origin = session.origin
        self.described = False
        self.autocast: str | None = None

    @unseen
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self.module()
        call = self.compiled or module._call_impl
        if torch.compiler.is_compiling() or get_ident() != self.session.thread:
            return call(*args, **kwargs)
        if not self.described:
            self._first_call()
        trains = module.training and torch.is_grad_enabled()
        if trains and self.session.device is not None:
            self.session.device.forward_begins()
        self.append((_now() - self.origin) << 8 | (_ENTER if trains else _ENTER_EVAL))
        try:
            return call(*args, **kwargs)
        finally:
            self.append((_now() - self.origin) << 8 | (_LEAVE if trains else _LEAVE_EVAL))

    def _first_call(self) -> None:
        self.described = True
        found = boundary.attempt(accelerator)
        for device in ("cpu", *([found.kind] if found is not None else ())):
            if boundary.attempt(torch.is_autocast_enabled, device):
                self.autocast = str(torch.get_autocast_dtype(device)).removeprefix("torch.")

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copied module starts without a tap."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickled by a module that writes its whole `__dict__`: as None, which is the slot's default."""
        return _nothing, ()


def _nothing() -> None:
    return None
