"""Parts of what items depend on, each small enough to be compared in well under a millisecond.

A part keeps what it saw, by reference for objects and by checksum for memory, and answers whether that has changed.
At the end: what each kind of object is taken for.
"""

from __future__ import annotations

import collections
import ctypes
import enum
import functools
import logging
import operator
import os
import pathlib
import random
import sys
import sysconfig
import threading
import types
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch

GONE = object()
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)
CHUNK = 1 << 16  # bytes that are summed up at once: some 30 us
FEW = 64  # entries, or bytes, that are compared for each batch
SLICE = 4096  # entries of a list or a dict

_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    type,
    staticmethod,
    classmethod,
    property,
)
_PLAIN_CONTAINERS = (list, dict, set, collections.deque)

Stat = tuple[int, int, int, int, int]


class Part(Protocol):
    """Something that may change. `quick`: a microsecond or so tells."""

    name: str

    @property
    def quick(self) -> bool: ...

    def changed(self) -> str:
        """Its name, or that of the entry that changed; empty where nothing did."""


class Names:
    """Attributes of an object, members of a class, global names: by identity, numbers and text by value.

    `all_names`: one more or one less is a change too.
    """

    def __init__(self, name: str, state: Callable[[], Mapping[str, Any]], *, all_names: bool = False) -> None:
        self.name, self.state, self.all = name, state, all_names
        self.kept: dict[str, Any] = {}
        self._count = len(state()) if all_names else 0

    @property
    def quick(self) -> bool:
        return len(self.kept) <= FEW

    def keep(self, name: str, value: Any) -> None:
        self.kept[name] = value

    def without(self, volatile: Collection[str]) -> None:
        """Leave out names that `changes` has given."""
        self.kept = {name: value for name, value in self.kept.items() if self._shown(name) not in volatile}
        self.all = self.all and self._shown("*") not in volatile

    def changed(self) -> str:
        return next(self.changes(), "")

    def changes(self) -> Iterator[str]:
        state = self.state()
        for name, before in self.kept.items():
            now = state.get(name, GONE)
            if now is not before:
                if not _equal(now, before):
                    yield self._shown(name)
                else:
                    self.kept[name] = now  # the same number in another object
        if self.all and len(state) != self._count:
            yield self._shown("*")

    def _shown(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name

    def apart(self) -> tuple[Names, ...]:
        """Functions, classes and modules that a class or a module holds on their own: few scripts set them anew."""
        state = self.state()
        if type(state) is dict and "__name__" not in state:
            return (self,)
        code = {name: value for name, value in self.kept.items() if isinstance(value, _CODE)}
        if not code or len(code) == len(self.kept):
            return (self,)
        rest, self.kept = Names(self.name, self.state), {**self.kept}
        rest.kept = code
        for name in code:
            del self.kept[name]
        return self, rest

    def weigh(self) -> int:
        state = self.state()
        code = type(state) is not dict or "__name__" in state
        if not self.kept or (code and all(isinstance(value, _CODE) for value in self.kept.values())):
            return 0
        lasting = bool(self._slotted()) or type(state) is types.MappingProxyType or state is self.state()
        return 1 + sum(value is not GONE for value in self.kept.values()) if lasting else 0

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        if slotted := self._slotted():
            return self._glance_at_slots(hold, *slotted)
        state = self.state()
        held, gone = hold(state), [name for name, value in self.kept.items() if value is GONE]
        terms = [
            f"{held}[{name!r}] is {hold(value)}" for name, value in self.kept.items() if value is not GONE
        ]
        if self.all or len(gone) > 1:  # none more, so none of these
            return [f"len({held}) == {len(state)}", *terms]
        return terms + [f"{name!r} not in {held}" for name in gone]

    def _slotted(self) -> tuple[Any, ...]:
        """An object with slots, and their names."""
        state = self.state
        return state.args if isinstance(state, functools.partial) and state.func is state_of else ()

    def _glance_at_slots(self, hold: Callable[[Any], str], value: Any, slots: list[str]) -> list[str]:
        held, own = hold(value), getattr(value, "__dict__", None)
        terms = [] if own is None else [f"len({hold(own)}) == {len(own)}"]
        for name, before in self.kept.items():
            if name in slots:
                there = f"{held}.{name} is {hold(before)}"
                terms.append(f"not hasattr({held}, {name!r})" if before is GONE else there)
            elif before is not GONE:
                terms.append(f"{hold(own)}[{name!r}] is {hold(before)}")
        return terms


class Cells:
    """A function: its code, its defaults and what its closure holds."""

    quick = True

    def __init__(self, name: str, function: types.FunctionType) -> None:
        self.name, self._function = name, function
        self._kept = self._now()

    def _now(self) -> list[Any]:
        function = self._function
        cells = [_content(cell) for cell in function.__closure__ or ()]
        return [function.__code__, function.__defaults__, function.__kwdefaults__, *cells]

    def changed(self) -> str:
        now = self._now()
        same = len(now) == len(self._kept) and all(
            one is two or _equal(one, two) for one, two in zip(now, self._kept, strict=True)
        )
        return "" if same else f"{self.name} (its code, a default or a variable that it closes over)"

    def weigh(self) -> int:
        """Without a closure it is code alone."""
        cells = self._function.__closure__ or ()
        return 3 + len(cells) if cells and GONE not in map(_content, cells) else 0

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        function, (code, defaults, named, *cells) = hold(self._function), self._kept
        own = (("code", code), ("defaults", defaults), ("kwdefaults", named))
        return [f"{function}.__{name}__ is {hold(value)}" for name, value in own] + [
            f"{hold(cell)}.cell_contents is {hold(value)}"
            for cell, value in zip(self._function.__closure__ or (), cells, strict=True)
        ]


class Entries:
    """Some entries of a list, a dict, a set or a deque."""

    def __init__(self, name: str, value: Any, first: int, count: int) -> None:
        self.name, self._value, self._first, self._count = name, value, first, count
        self._kept, self._keys = self._now()
        self.quick = count <= FEW

    @staticmethod
    def of(name: str, value: Any) -> Iterator[Entries]:
        for first in range(0, max(1, len(value)), SLICE):
            yield Entries(name, value, first, len(value))

    def _now(self) -> tuple[list[Any], list[Any]]:
        value, last = self._value, self._first + SLICE
        if isinstance(value, dict):
            keys = list(islice(entries_of(value), self._first, last))
            return [dict.get(value, key) for key in keys], keys
        if isinstance(value, list):
            return list.__getitem__(value, slice(self._first, last)), []
        return list(islice(entries_of(value), self._first, last)), []

    def changed(self) -> str:
        if len(self._value) != self._count:
            return self.name
        try:
            now, keys = self._now()
        except RuntimeError:  # another thread changes it right now
            return self.name
        if len(now) != len(self._kept) or keys != self._keys:
            return self.name
        if all(map(operator.is_, now, self._kept)):
            return ""
        for number, (one, two) in enumerate(zip(now, self._kept, strict=True)):
            if one is not two and not _equal(one, two):
                return f"{self.name}[{keys[number] if keys else self._first + number!r}]"
        self._kept = now
        return ""

    def weigh(self) -> int:
        return 4 + self._count if self.quick and type(self._value) in _PLAIN_CONTAINERS else 0

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        held = hold(self._value)
        terms = [f"len({held}) == {self._count}"]
        if self._keys:
            return [
                *terms,
                f"all(map(is_, {held}, {hold(self._keys)}))",
                f"all(map(is_, {held}.values(), {hold(self._kept)}))",
            ]
        return [*terms, f"all(map(is_, {held}, {hold(self._kept)}))"] if self._count else terms


class Bytes:
    """A piece of an array's memory."""

    def __init__(self, name: str, array: np.ndarray[Any, Any], first: int, last: int) -> None:
        self.name, self._array, self._first, self._last = name, array, first, last
        self._form, self._sum = (array.shape, array.dtype), self._now()
        self.quick = array.nbytes <= FEW

    @staticmethod
    def of(name: str, array: np.ndarray[Any, Any]) -> Iterator[Bytes]:
        rows = len(array) if array.ndim else 1
        step = max(1, CHUNK * rows // max(1, array.nbytes))
        for first in range(0, max(1, rows), step):
            yield Bytes(name, array, first, first + step)

    def _now(self) -> int:
        piece = self._array[self._first : self._last] if self._array.ndim else self._array
        return zlib.crc32(np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data) if piece.size else 0

    def changed(self) -> str:
        array = self._array
        return self.name if (array.shape, array.dtype) != self._form or self._now() != self._sum else ""

    def weigh(self) -> int:
        return 4 if self.quick else 0

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        held, kept = hold(self._array), hold(self._array.tobytes())
        return [f"{held}.dtype is {hold(self._array.dtype)}", f"{held}.tobytes() == {kept}"]


class ReadValue:
    """Whatever a function reads: a random state, a number that processes share, a pickle. `often`: a script may well
    set it between two batches."""

    def __init__(
        self, name: str, read: Callable[[], Any], *, quick: bool = False, often: bool = False
    ) -> None:
        self.name, self._read, self.quick, self._often = name, read, quick or often, often
        self._kept = read()

    def weigh(self) -> int:
        return 4 if self._often else 0

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        return [f"{hold(self._read)}() == {hold(self._kept)}"]

    def changed(self) -> str:
        try:
            return "" if self._read() == self._kept else self.name
        except (
            Exception
        ):  # it could be read before: a file that was closed, a class that pickle no longer finds
            return self.name


class Version(ReadValue):
    """A tensor: how often it was written to, and where it is: `tensor.data = other` puts another one in its place."""

    def __init__(self, name: str, tensor: Any) -> None:
        read = lambda: (tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride())  # noqa: E731
        super().__init__(name, read, often=True)
        self._tensor = tensor

    def glance(self, hold: Callable[[Any], str]) -> list[str]:
        held, (version, place, shape, _) = hold(self._tensor), self._kept  # strides: when all is compared
        return [
            f"{held}._version == {version}",
            f"{held}.data_ptr() == {place}",
            f"{held}.shape == {hold(shape)}",
        ]


class File:
    """By inode, size, and the times of its last change: writing back the old `mtime` moves `ctime`."""

    quick = False

    def __init__(self, path: str) -> None:
        self.name, self._kept = path, stat_of(path)

    def changed(self) -> str:
        return "" if stat_of(self.name) == self._kept else f"the file {self.name}"


def entries_of(value: Any) -> Iterator[Any]:
    """What a container holds, the keys of a dict, whatever a class of the user's that extends it would run."""
    kinds = (collections.OrderedDict, dict, list, tuple, set, frozenset, collections.deque)
    kind: Any = next(each for each in kinds if isinstance(value, each))
    found: Iterator[Any] = kind.__iter__(value)
    return found


def stat_of(path: str) -> Stat | None:
    try:
        about = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return None
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _equal(one: Any, two: Any) -> bool:
    """Numbers and text are what they are by their value: -0.0 is not 0.0, and 1 is not True."""
    if type(one) is not type(two):
        return False
    if isinstance(one, PLAIN):
        return bool(one == two or one != one) and repr(one) == repr(two)
    return (
        isinstance(one, tuple)
        and len(one) == len(two)
        and all(a is b or _equal(a, b) for a, b in zip(one, two, strict=True))
    )


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return GONE


# The state of an object: its attributes, also those in slots, and the methods of its class that run by themselves.


def dunders(owner: Any, state: Any) -> set[str]:
    if not isinstance(owner, type):
        return set()
    return {name for name in state if name.startswith("__") and name.endswith("__") and callable(state[name])}


def slots_of(kind: type) -> list[str]:
    named = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    slots = [name for names in named for name in ((names,) if isinstance(names, str) else names)]
    return [name for name in slots if name not in ("__dict__", "__weakref__")]


def state_of(value: Any, slots: list[str]) -> dict[str, Any]:
    own = getattr(value, "__dict__", {})
    return {**own, **{name: getattr(value, name) for name in slots if hasattr(value, name)}}


def itself(state: dict[str, Any]) -> dict[str, Any]:
    return state


def weakly(value: Any) -> Callable[[], Any]:
    """Reads the class of an object and does not keep it alive."""
    try:
        held = weakref.ref(value)
    except TypeError:
        return lambda: id(type(value))
    return lambda: id(type(held()))


def named(root: Any) -> str:
    return getattr(root, "__qualname__", None) or type(root).__name__


def level_of(logger: logging.Logger) -> tuple[int, bool, int]:
    return logger.getEffectiveLevel(), logger.disabled, logger.manager.disable


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def short(key: Any) -> str:
    return repr(key)[:40]


# Where code comes from: the user's own modules, or the standard library and installed packages.


_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
_INSTALLED = frozenset({"site-packages", "dist-packages"})  # also those of the user or of the system


def is_library(value: Any) -> bool:
    """Whether it comes from the standard library or an installed package; hotlap itself counts as one."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    module = sys.modules.get(name or "")
    if name is None or module is None or name == "__main__":
        return False
    file = getattr(module, "__file__", None)
    root = name.partition(".")[0]
    if file is None:  # built in, or a package without a file of its own; else it was made at run time
        return root in sys.stdlib_module_names or hasattr(module, "__path__")
    if root == "hotlap" or file.startswith(_LIBRARIES):
        return True
    return not _INSTALLED.isdisjoint(pathlib.PurePath(file).parts)


# What the walk takes each kind of object for, and names in code that mean more than an attribute.


DYNAMIC = frozenset(
    {"getattr", "vars", "__dict__", "eval", "exec", "locals", "globals", "attrgetter", "methodcaller"}
) | {"__getattribute__", "getattr_static", "getmembers", "asdict", "astuple", "dumps", "deepcopy"}
NOT_RUN = frozenset({"__new__", "__del__", "__reduce__", "__reduce_ex__", "__init__"}) | {
    *("__getstate__", "__setstate__", "__copy__", "__deepcopy__", "__init_subclass__", "__class_getitem__"),
    *("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__", "__slots__"),
    *("__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__abstractmethods__"),
}
NUMBERS = frozenset({bool, int, float, type(None)})
MAKING = frozenset({"__init__", "__new__"})  # run where an item makes an object
BY_NAME = (operator.attrgetter, operator.methodcaller)
CONSTANT = (*PLAIN, enum.Enum, torch.dtype, torch.device, torch.Size, np.dtype, np.generic, pathlib.PurePath)
IDLE = (logging.Logger, threading.Thread, type(threading.Lock()), type(threading.RLock()))
EXTENDED = (
    *(list, tuple, dict, set, frozenset, collections.deque),
    *(np.ndarray, torch.Tensor, bytearray, functools.partial),
)
PRINTING = frozenset({"repr", "str", "format", "array2string", "__repr__", "__str__"})
LEVELS = frozenset(
    {"isEnabledFor", "getEffectiveLevel", "level", "disabled"}
)  # of a logger, that code asks for
C_MEMORY = (ctypes.Array, ctypes.Structure, ctypes.Union)
GENERATORS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (random.Random, random.Random.getstate),
    (torch.Generator, lambda each: bytes(each.get_state().numpy())),
    (np.random.Generator, lambda each: repr(each.bit_generator.state)),
    (np.random.BitGenerator, lambda each: repr(each.state)),
    (np.random.RandomState, lambda each: repr(each.get_state(legacy=False))),
)
