"""A name for what items are made of: the dataset's code, its parameters, the files it names, and the versions.

Equal names mean equal items. What cannot be hashed the same way in every run (a lock, a socket, an object of a
C library without a state) has no such name, and is refused rather than left out.
"""

from __future__ import annotations

import enum
import functools
import hashlib
import os
import platform
import sys
import types
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch

from hotlap.data.cache.messages import NoFileError
from hotlap.data.cache.source import CacheSource
from hotlap.data.cache.watch import witness
from hotlap.sameness.parts import is_library

FORMAT = 4  # of the cache: caches of another format are not looked at. 3 had CRC-32 of the bytes, 2 of the ends alone
MOST_FILES = 200_000  # below a folder that a dataset names
LONGEST_PATH = 1024
_BASES = ("torch.utils.data.dataset", "typing", "abc")  # library classes that keep nothing of their own
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice)


def fingerprint(source: CacheSource) -> str:
    """Raises NoFileError with the attribute that has no stable hash."""
    hasher = _Hasher()
    versions = (
        FORMAT,
        str(sys.modules["hotlap"].__version__),
        str(torch.__version__),
        np.__version__,
        platform.python_version(),
    )
    hasher.add(versions, "versions")
    hasher.add(source.indices, "indices")
    hasher.add(source.dataset, type(source.dataset).__name__)
    return hasher.name()


class _Hasher:
    """Walks over an object and what it is made of; each object once, so that cycles end."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._met: dict[int, int] = {}
        self._keep: list[Any] = []  # objects that are made on the way must not give their ids to others
        self._files: set[str] = set()

    def name(self) -> str:
        return self._hash.hexdigest()

    def add(self, value: Any, at: str) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self._tell(kind.__name__, repr(value).encode("utf-8", "surrogatepass"))
            if kind is str:
                self._add_path(value)
            return
        if id(value) in self._met:
            self._tell("again", str(self._met[id(value)]).encode())
            return
        self._met[id(value)] = len(self._met)
        self._keep.append(value)
        self._add_new(value, kind, at)

    def _add_new(self, value: Any, kind: type, at: str) -> None:
        if kind in (list, tuple):
            self._add_all(kind.__name__, ((each, f"{at}[{number}]") for number, each in enumerate(value)))
        elif kind is dict:
            pairs = (part for key, each in value.items() for part in ((key, at), (each, f"{at}[{key!r}]")))
            self._add_all("dict", pairs)
        elif kind in (set, frozenset):
            self._tell("set", b"".join(sorted(_alone(each, at) for each in value)))
        elif isinstance(value, np.ndarray):
            self._add_array(value, at)
        elif isinstance(value, torch.Tensor):
            self._add_tensor(value, at)
        elif isinstance(value, PurePath):
            self.add(str(value), at)
        elif isinstance(value, enum.Enum):
            self._add_all("enum", ((kind, at), (value.name, at)))
        elif isinstance(value, functools.partial):
            self._add_all("partial", ((value.func, at), (value.args, at), (value.keywords, at)))
        elif isinstance(
            value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type, types.ModuleType)
        ):
            self._add_all("code", ((each, at) for each in code_of(value)))
        else:
            self._add_object(value, kind, at)

    def _add_object(self, value: Any, kind: type, at: str) -> None:
        """By its own state where it is plain Python, else by what it would give to pickle."""
        self.add(kind, at)
        if not is_library(kind) and _plain_python(kind):
            self._add_all("state", _state(value, kind, at))
            return
        try:
            reduced = value.__reduce_ex__(4)
        except Exception as fault:
            raise NoFileError(f"{at} is a {kind.__qualname__}, which has no stable hash ({fault})") from fault
        if isinstance(reduced, str):  # it is known by its name alone, such as torch.float32
            self._tell("name", reduced.encode())
            return
        parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
        self._add_all("reduced", ((part, at) for part in parts))

    def _add_all(self, what: str, parts: Any) -> None:
        self._tell(what, b"")
        for part, at in parts:
            self.add(part, at)
        self._tell("end", b"")

    def _add_array(self, value: np.ndarray[Any, Any], at: str) -> None:
        self._tell("array", f"{value.dtype.str} {value.shape} {value.dtype.names}".encode())
        if isinstance(value, np.memmap) and value.filename is not None:
            self._tell("mapped", f"{value.offset} {value.strides}".encode())
            self._add_path(str(value.filename))
        elif value.dtype.hasobject:
            self.add(value.tolist(), at)
        else:
            self._tell("content", np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)

    def _add_tensor(self, value: torch.Tensor, at: str) -> None:
        if value.device.type != "cpu" or value.layout is not torch.strided:
            raise NoFileError(f"{at} is a tensor on {value.device} with layout {value.layout}")
        self._tell("tensor", f"{value.dtype} {tuple(value.shape)}".encode())
        plain = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        self._tell("content", plain.view(torch.uint8).numpy().data if plain.numel() else b"")

    def _add_path(self, text: str) -> None:
        """Files that a string names, and all below a folder that it names."""
        if (
            not 0 < len(text) < LONGEST_PATH
            or "\0" in text
            or text in (".", "..", "/")
            or text in self._files
        ):
            return
        self._files.add(text)
        if (seen := witness(os.path.abspath(text))) is not None:  # noqa: PTH100
            self._tell("file", repr(seen).encode())
        elif os.path.isdir(text):  # noqa: PTH112
            for each in _tree(Path(text).resolve()):
                self._tell("file", repr(each).encode())

    def _tell(self, what: str, content: bytes | memoryview) -> None:
        self._hash.update(f"{what}:{len(content)}:".encode())
        self._hash.update(content)


def _plain_python(kind: type) -> bool:
    """Whether all that it holds is in its attributes."""
    return all(
        base is object
        or (not is_library(base) and "__reduce__" not in vars(base))
        or base.__module__ in _BASES
        for base in kind.__mro__
    )


def _state(value: Any, kind: type, at: str) -> Iterator[tuple[Any, str]]:
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    state = {
        **getattr(value, "__dict__", {}),
        **{name: getattr(value, name) for name in slots if hasattr(value, name)},
    }
    for key, each in state.items():
        yield key.encode(), at
        yield each, f"{at}.{key}"


def _alone(value: Any, at: str) -> bytes:
    hasher = _Hasher()
    hasher.add(value, at)
    return hasher.name().encode()


def _tree(folder: Path) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    own = os.path.realpath(os.environ.get("HOTLAP_CACHE") or ".hotlap")  # caches come and go
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
        folders[:] = [name for name in folders if os.path.join(parent, name) != own]  # noqa: PTH118
        for name in sorted(names):
            if (seen := witness(os.path.join(parent, name))) is not None:  # noqa: PTH118
                found.append(seen)
        if len(found) > MOST_FILES:
            raise NoFileError(f"{folder} holds more than {MOST_FILES:,} files, too many to watch")
    return found


# What a piece of code is made of, as it is loaded: bytecode, constants, and what it refers to.
#
# Code of installed libraries counts by its version. Everything else is looked into, with the functions, classes
# and values that its names stand for.


_SKIPPED = frozenset(
    {"__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__"}
) | {
    *("__firstlineno__", "__static_attributes__", "__orig_bases__", "__parameters__", "__abstractmethods__"),
    *("__dataclass_fields__", "__dataclass_params__", "_abc_impl", "__type_params__"),
}


def code_of(value: Any) -> Iterator[Any]:
    """Parts to hash in place of a function, a method, a class or a module."""
    if isinstance(value, types.MethodType):
        yield from ("method", value.__func__, value.__self__)
    elif isinstance(value, types.BuiltinFunctionType):
        yield from ("builtin", value.__qualname__)
        if value.__self__ is not None and not isinstance(value.__self__, types.ModuleType):
            yield value.__self__
    elif is_library(value):
        yield from ("library", getattr(value, "__qualname__", ""), *version_of(value))
    elif isinstance(value, types.FunctionType):
        yield from _function(value)
    elif isinstance(value, type):
        yield from _class(value)
    else:
        yield from ("module", value.__name__)  # its parts are met through the names that are used of it


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return str(getattr(sys.modules.get(package), "__version__", ""))


def version_of(value: Any) -> tuple[str, str]:
    """Name of the module, and version of the package that it belongs to."""
    name = value.__name__ if isinstance(value, types.ModuleType) else str(value.__module__)
    return name, _version(name.partition(".")[0])


def _function(function: types.FunctionType) -> Iterator[Any]:
    yield from ("function", function.__qualname__)
    yield from _bytecode(function.__code__)
    yield function.__defaults__
    yield function.__kwdefaults__
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not filled yet
            yield "empty"
    if (wrapped := getattr(function, "__wrapped__", None)) is not None:
        yield wrapped
    names = _names(function.__code__)
    for name in names:
        if name in function.__globals__:
            yield name
            yield function.__globals__[name]
            yield from _used_of(function.__globals__[name], names)


def _used_of(module: Any, names: list[str]) -> Iterator[Any]:
    """Of a module of the user's own: what the code may use of it."""
    if isinstance(module, types.ModuleType) and not is_library(module):
        for name in names:
            if name in vars(module):
                yield name
                yield vars(module)[name]
                yield from _used_of(vars(module)[name], [other for other in names if other != name])


def _bytecode(code: types.CodeType) -> Iterator[Any]:
    yield code.co_code
    yield " ".join((*code.co_names, "", *code.co_varnames)).encode()  # as bytes: a name of Python is no path
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _bytecode(constant)
        else:
            yield constant


def _names(code: types.CodeType) -> list[str]:
    found = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _names(constant)
    return list(dict.fromkeys(found))


def _class(cls: type) -> Iterator[Any]:
    yield from ("class", cls.__qualname__)
    for name, member in vars(cls).items():
        if name not in _SKIPPED:
            yield name
            yield from _member(member)
    yield from (base for base in cls.__bases__ if base is not object)


def _member(member: Any) -> Iterator[Any]:
    if isinstance(member, (staticmethod, classmethod)):
        yield member.__func__
    elif isinstance(member, property):
        yield from (member.fget, member.fset)
    elif isinstance(member, functools.cached_property):
        yield member.func
    elif not isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType)):
        yield member
