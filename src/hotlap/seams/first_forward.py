"""The first forward of a root under a setting that not every model bears."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.nn import Module

from hotlap.ports.target import Undo


class FirstForward:
    """A layer: redone without the setting where the first forward raises. What it moved on is put back before."""

    def __init__(
        self, module: Module, remember: Callable[[Module], Undo], give_up: Callable[[str], None]
    ) -> None:
        self._module = weakref.ref(module)
        self._remember = remember
        self._give_up = give_up
        self._passed = False

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if self._passed or module is None:
            return call(*args, **kwargs)
        put_back = self._remember(module)
        self._passed = True
        try:
            return call(*args, **kwargs)
        except RuntimeError as fault:
            put_back()
            reason = str(fault).strip().partition("\n")[0][:160]
            self._give_up(reason)
            return call(*args, **kwargs)
