"""Finds the units of a folder: one file each, no registry to edit; picks by id and suggests on a typo."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import TypeVar

from hotlap.errors import UsageError

Unit = TypeVar("Unit")


def units(package: ModuleType, kind: type[Unit], group: str = "") -> list[Unit]:
    """One instance of every concrete subclass of `kind` in the package's modules and in the entry-point group."""
    found: list[Unit] = []
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        found += [unit() for unit in _own_classes(module, kind)]
    if group:
        from importlib import metadata  # which takes longer to import than all of a folder's units

        found += [entry.load()() for entry in metadata.entry_points(group=group)]
    return found


def unit(package: ModuleType, kind: type[Unit], name: str) -> Unit:
    """The unit of one file, without importing its neighbours; the file is called as the unit's id, with _ for -."""
    module = importlib.import_module(f"{package.__name__}.{name.replace('-', '_')}")
    return _own_classes(module, kind)[0]()


def pick(what: str, wanted: str, known: Iterable[str]) -> str:
    """`wanted` if it is known; else an error with the nearest known name."""
    names = sorted(known)
    if wanted in names:
        return wanted
    near = difflib.get_close_matches(wanted, names, n=1, cutoff=0.5)
    remedy = f"did you mean '{near[0]}'?" if near else f"known are: {', '.join(names)}"
    raise UsageError(f"no {what} is called '{wanted}'.", remedy)


def card(unit: object) -> str:
    """The unit's card: the docstring of the module that it lives in."""
    return importlib.import_module(type(unit).__module__).__doc__ or ""


def _own_classes(module: ModuleType, kind: type[Unit]) -> list[type[Unit]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, kind)
        and value.__module__ == module.__name__
        and not getattr(value, "__abstractmethods__", None)
    ]
