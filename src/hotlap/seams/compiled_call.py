"""A compiled call that can do without the compiler: what fails is redone, what is compiled ever again is not."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from hotlap.ports.target import Undo


class CompiledCall:
    """A layer in place of a module's call. Where sizes are new, the state that a forward moves on is remembered."""

    def __init__(
        self,
        module: Any,
        compiled: Callable[..., Any],
        remember: Callable[[Any], Undo],
        give_up: Callable[[str], None],
    ) -> None:
        from torch._dynamo import config
        from torch._dynamo.utils import counters

        self._module = weakref.ref(module)
        self._compiled: Callable[..., Any] | None = compiled
        self._remember = remember
        self._give_up = give_up
        self._met: set[Any] = set()
        self._counted = counters["stats"]
        self._most = config.recompile_limit  # after as many the compiler gives up by itself
        self._compilations = 0

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._compiled is None:
            return call(*args, **kwargs)
        graphs = self._counted["unique_graphs"]
        result = self._attempt(self._compiled, call, args, kwargs)
        self._compilations += self._counted["unique_graphs"] != graphs
        if self._compilations >= self._most:
            self._end(f"it was compiled anew at {self._compilations} calls")
        return result

    def _attempt(self, compiled: Callable[..., Any], call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        sizes = tuple(getattr(each, "shape", None) for each in (*args, *kwargs.values()))
        put_back = None if sizes in self._met else self._remember(self._module())
        self._met.add(sizes)
        try:
            return compiled(*args, **kwargs)
        except (TorchDynamoException, ImportError, OSError) as fault:
            if put_back is not None:
                put_back()
            self._end(f"the compiler rejects it: {_first_line(fault)}")
            return call(*args, **kwargs)

    def _end(self, reason: str) -> None:
        if self._compiled is not None:
            self._compiled = None
            self._give_up(reason)


def _first_line(fault: BaseException) -> str:
    fault = getattr(fault, "inner_exception", fault)  # what the compiler's back end said
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[0] if lines else ''}"[:200]
