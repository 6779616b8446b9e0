"""What a piece of code is made of, as it is loaded: bytecode, constants, and what it refers to.

Code of installed libraries counts by its version. Everything else is looked into, with the functions, classes
and values that its names stand for.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import types
from collections.abc import Iterator
from importlib import metadata
from typing import Any

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
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


def is_library(value: Any) -> bool:
    """Whether it comes from the standard library or an installed package."""
    name = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    module = sys.modules.get(name or "")
    if name is None or module is None or name == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or file.startswith(_LIBRARIES)


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
