"""Notes which libraries a job imports, so that its next runs may begin with these imported (see warm.py).

Nothing more is noted once the script itself has changed the environment, which libraries read when they are imported.
And those that know torch are left out: imported early, they would hold torch's functions as these are before the plan
and the probe have put theirs in place.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

_HOTLAP = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_PATHS = sysconfig.get_paths()
_STANDARD = tuple(f"{_PATHS[key]}{os.sep}" for key in ("stdlib", "platstdlib"))
_INSTALLED = tuple(f"{_PATHS[key]}{os.sep}" for key in ("purelib", "platlib"))


class ImportRegister(MetaPathFinder):
    """A finder that finds nothing: it hears of every import, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._names: list[str] = []
        self._open = True

    def install(self) -> None:
        """Called once, before any of the user's code."""
        sys.meta_path.insert(0, self)
        for name in ("putenv", "unsetenv"):  # os.environ calls these at every change
            setattr(os, name, self._noticing(getattr(os, name)))
        atexit.register(self.write)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        if self._open:
            self._names.append(fullname)
        return None

    def write(self) -> None:
        """What the process has imported by now; a forked child leaves it to its parent."""
        if os.getpid() == self._pid:
            draft = self._path.with_name(f".{self._path.name}.{self._pid}")
            draft.write_text(json.dumps(importable(self._names)), encoding="utf-8")
            draft.replace(self._path)

    def _noticing(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def changed(*args: Any) -> None:
            self._open = self._open and not _by_the_script(sys._getframe(1))
            original(*args)

        return changed


def importable(names: Iterable[str]) -> list[str]:
    """Those that may be imported before torch's functions are replaced, in the same order."""
    there = [name for name in dict.fromkeys(names) if _is_library(sys.modules.get(name))]
    packages = {name.partition(".")[0] for name in there} - {"hotlap", "torch"}
    knowing = {package for package in packages if _knows_torch(package)}
    return [name for name in there if name.partition(".")[0] not in knowing]


def _by_the_script(frame: FrameType | None) -> bool:
    """Whether the first frame that is not of the standard library is neither of an installed one nor of hotlap."""
    while frame is not None and _is_standard(frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith((*_INSTALLED, _HOTLAP))


def _is_standard(file: str) -> bool:
    return file.startswith(("<frozen", *_STANDARD)) and not file.startswith(_INSTALLED)


def _is_library(module: ModuleType | None) -> bool:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if origin in ("built-in", "frozen"):
        return True
    return isinstance(origin, str) and origin.startswith((*_STANDARD, *_INSTALLED, _HOTLAP))


def _knows_torch(package: str) -> bool:
    modules = [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == package and module
    ]
    return any(_is_of_torch(value) for module in modules for value in list(vars(module).values()))


def _is_of_torch(value: Any) -> bool:
    """Without asking objects for attributes: some make them when they are asked."""
    name = value.__name__ if isinstance(value, ModuleType) else None
    if isinstance(value, FunctionType | type):
        name = value.__module__
    return isinstance(name, str) and name.partition(".")[0] == "torch"
