"""Calls back right after a module has been executed, however it came to be imported.

The callback hangs on the loader's `exec_module`, not on `find_spec`: libraries call `find_spec("torch")` only to see
whether torch is there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from hotlap.probe import boundary

Callback = Callable[[ModuleType], None]


class Doorman(MetaPathFinder):
    """A finder that finds nothing by itself: it lets the others find, and listens."""

    def __init__(self) -> None:
        self._expected: dict[str, list[Callback]] = {}
        self._asking: set[str] = set()

    def expect(self, name: str, callback: Callback) -> None:
        """Call back when the module `name` has been executed; at once if it already has been."""
        module = sys.modules.get(name)
        if module is not None and not getattr(module.__spec__, "_initializing", False):
            callback(module)
        else:
            self._expected.setdefault(name, []).append(callback)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._expected or fullname in self._asking:
            return None
        self._asking.add(fullname)
        try:
            spec = self._ask_the_others(fullname, path, target)
        finally:
            self._asking.discard(fullname)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._listen(spec.loader, fullname)
        return spec

    def _ask_the_others(self, name: str, path: Any, target: Any) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    return spec
        return None

    def _listen(self, loader: Any, name: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            # Some loaders load more than one module, such as all those of a zip file.
            for callback in self._expected.pop(name, ()) if module.__name__ == name else ():
                boundary.attempt(callback, module)

        try:
            loader.exec_module = exec_module
        except AttributeError as error:  # a loader without a __dict__
            boundary.record(f"import of {name}", error)
