"""What lies beyond an item's objects and names is seen to change, or is said to be unknown: modes of libraries, forms
of arrays, attributes of what has none as a rule, builtins, bases of classes, files that are not there yet."""

from __future__ import annotations

import builtins
import collections
import functools
import importlib
import locale
import logging
import multiprocessing
import os
import random
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hotlap.sameness.dependencies import Dependencies

LEVEL = 0.0
NAMED = "LEVEL_FOR_ALL_MODULES"
log = logging.getLogger("items of a test")


class Holds:
    """Items name all attributes that the cases below give."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def __getitem__(self, index: int) -> Any:
        return self.held[index] + self.held.level


class ByFactory(Holds):
    def __getitem__(self, index: int) -> Any:
        return self.held.default_factory()


class ByBuiltin(Holds):
    def __getitem__(self, index: int) -> Any:
        return LEVEL_FOR_ALL_MODULES  # type: ignore[name-defined]  # noqa: F821


class Low:
    def level(self) -> float:
        return 0.0


class High:
    def level(self) -> float:
        return 1.0


class Mixed(Low):
    pass


def _set_bases(_: Any, patch: pytest.MonkeyPatch) -> None:
    """Bases can be set and not be deleted, which is what `setattr` of a patch would do in the end."""
    Mixed.__bases__ = (Low,) if Mixed.__bases__ == (High,) else (High,)


class ByFile(Holds):
    def __getitem__(self, index: int) -> Any:
        return os.path.exists("hard.flag")  # noqa: PTH110


class ByFolder(Holds):
    def __getitem__(self, index: int) -> Any:
        return os.listdir(self.held)  # noqa: PTH208


class ByLogger(Holds):
    def __getitem__(self, index: int) -> Any:
        return log.isEnabledFor(logging.DEBUG)


class ByText(Holds):
    def __getitem__(self, index: int) -> Any:
        return repr(self.held)


class ByMode(Holds):
    def __getitem__(self, index: int) -> Any:
        return torch.is_grad_enabled(), os.getcwd()  # noqa: PTH109


class ByDescriptor(Holds):
    def __getitem__(self, index: int) -> Any:
        return os.pread(self.held, 4, index)


class BySubclasses(Holds):
    def __getitem__(self, index: int) -> Any:
        return Low.__subclasses__()


class ByModule(Holds):
    def __getitem__(self, index: int) -> Any:
        return sys.modules["by"].level, importlib.import_module("by").level


def _with_level(value: Any) -> Any:
    value.level = 0.0
    return value


def _set_level(dataset: Any, _: Any) -> None:
    dataset.held.level = 3.0


def _transpose(dataset: Any, _: Any) -> None:
    dataset.held.data = dataset.held.data.t()


def _masked() -> Any:
    return np.ma.masked_array(np.zeros(4), mask=np.zeros(4, bool))


def _nothing(*_: Any) -> None:
    return None


Change = Callable[[Any, pytest.MonkeyPatch], object]
CASES: dict[str, tuple[Callable[[], Any], Change]] = {
    "attribute of a tensor": (lambda: Holds(_with_level(torch.zeros(3))), _set_level),
    "attribute of a partial": (lambda: Holds(_with_level(functools.partial(int))), _set_level),
    "mask of an array": (lambda: Holds(_masked()), lambda data, _: data.held.mask.__setitem__(1, True)),
    "type of an array": (
        lambda: Holds(np.ones(4, "int32")),
        lambda data, _: setattr(data.held, "dtype", np.float32),
    ),
    "strides of a tensor": (lambda: Holds(torch.eye(3) + torch.ones(3)), _transpose),
    "default factory": (
        lambda: ByFactory(collections.defaultdict(lambda: LEVEL)),
        lambda _, patch: patch.setitem(globals(), "LEVEL", 1.0),
    ),
    "other default factory": (
        lambda: ByFactory(collections.defaultdict(int)),
        lambda data, _: setattr(data.held, "default_factory", float),
    ),
    "name in builtins": (ByBuiltin, lambda _, patch: patch.setattr(builtins, NAMED, 1.0)),
    "bases of a class": (lambda: Holds(Mixed()), _set_bases),
    "file that appears": (ByFile, lambda *_: Path("hard.flag").touch()),
    "folder that fills": (lambda: ByFolder("parts"), lambda *_: Path("parts/more").touch()),
    "level of a logger": (ByLogger, lambda _, patch: patch.setattr(log, "level", logging.DEBUG)),
    "options of printing": (lambda: ByText(np.zeros(2)), lambda *_: np.set_printoptions(precision=3)),
    "mode that code asks for": (ByMode, lambda *_: torch.set_grad_enabled(False)),
    "working directory": (ByMode, lambda _, patch: patch.chdir("parts")),
    "default device": (lambda: Holds([]), lambda *_: torch.set_default_device("meta")),
    "autocast": (lambda: Holds([]), lambda *_: torch.set_autocast_enabled("cpu", True)),
    "errors of NumPy": (lambda: Holds([]), lambda *_: np.seterr(divide="raise")),
    "locale": (lambda: Holds([]), lambda *_: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8")),
    "numbers of the system": (lambda: Holds(random.SystemRandom()), _nothing),
    "weak value": (lambda: Holds(weakref.WeakValueDictionary({0: log})), _nothing),
    "number of a file": (lambda: ByDescriptor(0), _nothing),
    "subclasses": (BySubclasses, _nothing),
    "modules by name": (ByModule, _nothing),
}


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modes are put back, and files are made elsewhere."""
    (tmp_path / "parts").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(builtins, NAMED, 0.0, raising=False)
    number = locale.setlocale(locale.LC_NUMERIC)
    errors, precision, grad = np.geterr(), np.get_printoptions()["precision"], torch.is_grad_enabled()
    yield
    torch.set_autocast_enabled("cpu", False)
    locale.setlocale(locale.LC_NUMERIC, number)
    np.seterr(**errors)
    np.set_printoptions(precision=precision)
    torch.set_grad_enabled(grad)
    torch.set_default_device(None)


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_or_said_to_be_unknown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, change = CASES[name]
    dataset = make()
    watched = Dependencies(dataset)
    assert not watched.changed()
    change(dataset, monkeypatch)
    assert watched.changed() or watched.unknown


def test_what_lives_in_another_process_is_unknown() -> None:
    with multiprocessing.Manager() as manager:
        assert Dependencies(Holds(manager.dict())).unknown


@pytest.mark.parametrize(
    "name",
    ["default device", "autocast", "mode that code asks for", "attribute of a tensor", "name in builtins"],
)
def test_a_mode_or_an_attribute_is_compared_for_each_batch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, change = CASES[name]
    dataset = make()
    watched = Dependencies(dataset)
    change(dataset, monkeypatch)
    assert watched.quickly_changed()


def test_a_default_device_that_takes_the_place_of_another_is_seen() -> None:
    torch.set_default_device("cpu")
    watched = Dependencies(Holds([]))
    torch.set_default_device("meta")
    assert watched.quickly_changed()
    torch.set_default_device("cpu")
    assert not Dependencies(Holds([])).quickly_changed()


def test_what_code_does_not_ask_for_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may write files, log and print: that ends no cache."""
    dataset = Holds(log)
    watched = Dependencies(dataset)
    Path("hard.flag").touch()
    np.set_printoptions(precision=3)
    torch.set_grad_enabled(False)
    assert not watched.changed()
    assert not watched.unknown
