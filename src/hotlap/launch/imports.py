"""Notes which libraries a job imports, so that its next runs may begin with these imported (see warm.py).

Libraries that know torch are left out: imported early, they would hold torch's functions as these are before the plan
and the probe have put theirs in place. And nothing counts that came after a change of the environment which libraries
read when they are imported, unless a library has made the change that will make it again.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import site
import sys
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

from hotlap.facts import private

_HOTLAP = f"{Path(__file__).resolve().parents[1]}{os.sep}"
_PATHS = sysconfig.get_paths()
_STANDARD = tuple(f"{_PATHS[key]}{os.sep}" for key in ("stdlib", "platstdlib"))
_SITES = {_PATHS["purelib"], _PATHS["platlib"], *site.getsitepackages(), site.getusersitepackages()}
_INSTALLED = tuple(f"{each}{os.sep}" for each in _SITES)
_SCRIPT = ""  # in the place of a library's name
# When GPUs are counted, not at an import; Lightning sets it before it imports torch.
_READ_LATER = {"PYTORCH_NVML_BASED_CUDA_CHECK"}
Change = tuple[int, str]
"""Of the process's environment: how many imports had come by then, and the library that made it."""


class ImportRegister(MetaPathFinder):
    """A finder that finds nothing: it hears of every import, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pid = os.getpid()
        self._names: list[str] = []
        self._changes: list[Change] = []

    def install(self) -> None:
        """Called once, before any of the user's code."""
        sys.meta_path.insert(0, self)
        # os.environ calls the first two at every change; pools of threads are as large as the cores that are allowed.
        for name in ("putenv", "unsetenv", "sched_setaffinity"):
            if hasattr(os, name):
                setattr(os, name, self._noticing(getattr(os, name)))
        atexit.register(self.write)

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        self._names.append(fullname)
        return None

    def write(self) -> None:
        """What the process has imported by now; a forked child leaves it to its parent."""
        if os.getpid() == self._pid:
            draft = self._path.with_name(f".{self._path.name}.{self._pid}")
            private.write(draft, json.dumps(importable(self._names, self._changes)).encode())
            draft.replace(self._path)

    def _noticing(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def changed(*args: Any) -> None:
            named = os.fsdecode(args[0]) if isinstance(args[0], str | bytes) else ""
            if named not in _READ_LATER:
                self._changes.append((len(self._names), _changer(sys._getframe(1))))
            original(*args)

        return changed


def importable(names: Sequence[str], changes: Iterable[Change] = ()) -> list[str]:
    """Those that may be imported before torch's functions are replaced, in the same order."""
    packages = {_package(name) for name in names if _is_library(sys.modules.get(name))} - {"hotlap", "torch"}
    ahead = {package for package in packages if not _knows_torch(package)} | {"hotlap", "torch"}
    until = min((at for at, library in changes if library not in ahead), default=len(names))
    there = dict.fromkeys(name for name in names[:until] if _is_library(sys.modules.get(name)))
    return [name for name in there if _package(name) in ahead]


def _package(name: str) -> str:
    return name.partition(".")[0]


def _changer(frame: FrameType | None) -> str:
    """The library whose code this is, by the first frame that is not of the standard library; else the script."""
    while frame is not None and _is_standard(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return _SCRIPT
    file = frame.f_code.co_filename
    if file.startswith(_HOTLAP):
        return "hotlap"
    return _package(frame.f_globals.get("__name__", _SCRIPT)) if file.startswith(_INSTALLED) else _SCRIPT


def _is_standard(file: str) -> bool:
    return file.startswith(("<frozen", *_STANDARD)) and not file.startswith(_INSTALLED)


def _is_library(module: ModuleType | None) -> bool:
    spec = getattr(module, "__spec__", None)
    origin = getattr(spec, "origin", None)
    if origin in ("built-in", "frozen"):
        return True
    return isinstance(origin, str) and origin.startswith((*_STANDARD, *_INSTALLED, _HOTLAP))


def _knows_torch(package: str) -> bool:
    modules = [module for name, module in list(sys.modules.items()) if _package(name) == package and module]
    return any(_is_of_torch(value) for module in modules for value in list(vars(module).values()))


def _is_of_torch(value: Any) -> bool:
    """Without asking objects for attributes: some make them when they are asked."""
    name = value.__name__ if isinstance(value, ModuleType) else None
    if isinstance(value, FunctionType | type):
        name = value.__module__
    return isinstance(name, str) and _package(name) == "torch"
