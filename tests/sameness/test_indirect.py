"""What items reach by another way than plain attributes and globals is seen to change, or is said to be unknown."""

from __future__ import annotations

import ctypes
import dataclasses
import decimal
import enum
import operator
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler, SubsetRandomSampler

from hotlap.sameness.claim import is_listed, of_sampler
from hotlap.sameness.content import same
from hotlap.sameness.dependencies import Dependencies

LEVEL = 0.0
levels = (ctypes.c_double * 4)()
module = types.ModuleType("held_by_a_test")
module.__dict__["LEVEL"] = 0.0


class Config:
    def __init__(self) -> None:
        self.noise = 0.0

    def __repr__(self) -> str:
        return str(self.noise)


@dataclasses.dataclass
class Fields:
    gain: float = 1.0


class Made:
    def __init__(self) -> None:
        self.value = LEVEL


class Mode(enum.Enum):
    PLAIN = 1


class Number(float):
    pass


class Listed(list[float]):
    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("the user's code is not run by a look")


class Array(np.ndarray[Any, Any]):
    pass


class Meta(type):
    @property
    def level(cls) -> float:
        return LEVEL


class Base:
    def __init__(self, held: Any = None, read: Any = None) -> None:
        self.held, self.read = held, read


class ByConstructor(Base):
    def __getitem__(self, index: int) -> Any:
        return Made().value


class ByHeldClass(Base):
    def __getitem__(self, index: int) -> Any:
        return self.held().value


class ByTuple(Base):
    def __getitem__(self, index: int) -> Any:
        return dataclasses.astuple(self.held)


class ByGetter(Base):
    def __getitem__(self, index: int) -> Any:
        return self.read(self.held)


class ByFormat(Base):
    def __getitem__(self, index: int) -> Any:
        return "{0.noise}".format(self.held)  # noqa: UP030, UP032


class ByText(Base):
    def __getitem__(self, index: int) -> Any:
        return f"{self.held!r}"


class ByMeta(Base, metaclass=Meta):
    def __getitem__(self, index: int) -> Any:
        return type(self).level


class ByAttribute(Base):
    def __getitem__(self, index: int) -> Any:
        return self.held.level + self.held.LEVEL


class ByImport(Base):
    def __getitem__(self, index: int) -> Any:
        from held_by_a_test import LEVEL as LEVEL_NOW

        return LEVEL_NOW


class ByMemory(Base):
    def __getitem__(self, index: int) -> Any:
        return levels[index]


class ByArguments(Base):
    def __getitem__(self, index: int) -> Any:
        return len(sys.argv)


class ByLibrary(Base):
    def __getitem__(self, index: int) -> Any:
        return np.tanh(index)


def scaled(value: float) -> Any:
    return value * scaled.by  # type: ignore[attr-defined]


class ByFunction(Base):
    def __getitem__(self, index: int) -> Any:
        return scaled(index)


class ByName(Base):
    def __getitem__(self, index: int) -> Any:
        return globals()["LEV" + "EL"]


class Plain(Base):
    def __getitem__(self, index: int) -> Any:
        return decimal.Decimal(index) / 7


class ByProcess(Base):
    def __getitem__(self, index: int) -> Any:
        return index and threading.current_thread().name


def _set_level(_: Any, patch: pytest.MonkeyPatch) -> None:
    patch.setitem(globals(), "LEVEL", 1.0)


def _set_held(name: str) -> Callable[[Any, pytest.MonkeyPatch], None]:
    return lambda dataset, _: setattr(dataset.held, name, 3.0)


def _with_level(value: Any) -> Any:
    value.level = 0.0
    return value


Change = Callable[[Any, pytest.MonkeyPatch], None]
CASES: dict[str, tuple[Callable[[], Any], Change]] = {
    "constructor": (ByConstructor, _set_level),
    "class that is held": (lambda: ByHeldClass(Made), _set_level),
    "dataclass as a tuple": (lambda: ByTuple(Fields()), _set_held("gain")),
    "attrgetter": (lambda: ByGetter(Config(), operator.attrgetter("noise")), _set_held("noise")),
    "format string": (lambda: ByFormat(Config()), _set_held("noise")),
    "repr": (lambda: ByText(Config()), _set_held("noise")),
    "metaclass": (ByMeta, _set_level),
    "enum member": (lambda: ByAttribute(_with_level(Mode.PLAIN)), _set_held("level")),
    "number": (lambda: ByAttribute(_with_level(Number())), _set_held("level")),
    "list": (lambda: ByAttribute(_with_level(Listed([1.0]))), _set_held("level")),
    "array": (lambda: ByAttribute(_with_level(np.zeros(3).view(Array))), _set_held("level")),
    "thread": (
        lambda: ByAttribute(_with_level(type("Feeder", (threading.Thread,), {})())),
        _set_held("level"),
    ),
    "module that is held": (lambda: ByAttribute(module), _set_held("LEVEL")),
    "module that is imported late": (ByImport, lambda _, patch: patch.setattr(module, "LEVEL", 2.0)),
    "memory of C": (ByMemory, lambda *_: operator.setitem(levels, 1, 5.0)),
    "arguments": (ByArguments, lambda _, patch: patch.setattr(sys, "argv", [*sys.argv, "more"])),
    "function of a library": (ByLibrary, lambda _, patch: patch.setattr(np, "tanh", np.sin)),
    "attribute of a function": (ByFunction, lambda *_: setattr(scaled, "by", 2.0)),
    "global by name": (ByName, _set_level),
    "decimal context": (Plain, lambda _, patch: patch.setattr(decimal.getcontext(), "prec", 5)),
    "thread it runs in": (ByProcess, lambda *_: None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen_or_said_to_be_unknown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "held_by_a_test", module)
    scaled.by = 1.0  # type: ignore[attr-defined]
    make, change = CASES[name]
    dataset = make()
    watched = Dependencies(dataset)
    assert not watched.changed()
    change(dataset, monkeypatch)
    assert watched.changed() or watched.unknown


def test_attributes_are_compared_for_each_batch_beside_many_tensors() -> None:
    class Rows(Base):
        def __getitem__(self, index: int) -> Any:
            return self.held[index] * self.read.held.held.noise

    dataset = Rows([torch.zeros(2) for _ in range(200)], Base(Base(Config())))
    watched = Dependencies(dataset)
    dataset.read.held.held.noise = 2.0
    assert watched.quickly_changed()


def test_the_size_of_batches_counts_where_the_order_is_drawn_up() -> None:
    sampler = BatchSampler(SequentialSampler(range(32)), 4, False)
    output = iter(sampler)
    next(output)
    assert is_listed(output)
    watched = of_sampler(sampler, None, listed=True)
    assert not watched.changed()
    sampler.batch_size = 8
    assert watched.quickly_changed()


def test_indices_that_torch_s_sampler_reads_late_count() -> None:
    indices = list(range(32))
    sampler = BatchSampler(SubsetRandomSampler(indices), 4, False)
    output = iter(sampler)
    next(output)
    assert not is_listed(output)
    watched = of_sampler(sampler, None)
    indices[5] = 0
    assert watched.changed()


def test_tensors_and_arrays_are_the_same_with_all_that_belongs_to_them() -> None:
    one, two = torch.ones(2), torch.ones(2)
    two.weight = 1.0  # type: ignore[attr-defined]
    assert not same(one, two)
    assert not same(np.zeros((2, 3)), np.zeros((3, 2)))
    assert not same(np.zeros(2, "int64"), np.zeros(2, "float64"))
