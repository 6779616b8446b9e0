"""Walks over everything that a dataset's items can depend on, and gives each part of it that can change.

From the objects: attributes, slots, containers, arrays, tensors, random generators. From the code of the user's modules
that fetching an item runs: global names, attributes of modules, closure cells, defaults, class attributes, and the
environment. Of an object of the user's own class only attributes count whose name that code uses. Code of installed
libraries is taken to be constant; the objects that it keeps are walked.
"""

from __future__ import annotations

import builtins
import collections
import decimal
import functools
import gc
import io
import locale
import logging
import os
import pathlib
import pickle
import random
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from multiprocessing.managers import BaseProxy
from typing import Any

import numpy as np
import torch

from hotlap.sameness.epochs import CELLS
from hotlap.sameness.names import Paths, formatted_in, globals_in, imports_in, names_in, texts_in
from hotlap.sameness.parts import (
    BY_NAME,
    C_MEMORY,
    CONSTANT,
    DYNAMIC,
    EXTENDED,
    GENERATORS,
    GONE,
    IDLE,
    LEVELS,
    MAKING,
    NOT_RUN,
    NUMBERS,
    PRINTING,
    Bytes,
    Cells,
    Entries,
    Names,
    Part,
    ReadValue,
    Version,
    dunders,
    entries_of,
    is_library,
    is_text,
    itself,
    level_of,
    named,
    short,
    slots_of,
    state_of,
    weakly,
)

MOST = 100_000  # objects: more are not walked, and that is said
MOST_PICKLED = 32 << 20  # bytes: an object of a C library is compared by its pickle


class Walk:
    """`parts` can change, `unknown` could not be walked, `memory` holds the addresses of arrays: begin and end.

    `leave` are attributes, by the id of their holder and their name, that items do not depend on.
    """

    def __init__(self, roots: tuple[Any, ...], leave: frozenset[tuple[int, str]] = frozenset()) -> None:
        self.parts: list[Part] = []
        self.unknown: dict[str, None] = {}
        self.memory: list[tuple[int, int]] = []
        self._paths = Paths()
        self._leave = leave
        self._met: dict[int, Any] = {}  # kept, so that no id is used again
        # What lies nearest comes first: a few parts of it are compared for each batch.
        self._todo = collections.deque[tuple[Any, str]]((root, named(root)) for root in roots)
        self._used: set[str] = set()
        self._owners: list[
            tuple[Any, str, Names]
        ] = []  # objects, classes of the user's, whose names are filtered
        self._environment = False
        self._loggers: dict[logging.Logger, None] = {}
        self.parts.append(
            ReadValue("the default dtype, the default device or autocast", switches, often=True)
        )
        self.parts.append(ReadValue("the locale, a decimal context or NumPy's errors", slow_switches))
        self._builtins = Names("builtins", functools.partial(vars, builtins))
        self.parts.append(self._builtins)
        self._named_by_code: set[int] = set()  # classes whose objects items may make
        self._libraries: dict[type, bool] = {}
        self._modules: set[tuple[int, str]] = set()  # walked for a function
        self._run()

    @property
    def files(self) -> dict[str, None]:
        """That items may be read from."""
        return self._paths.files

    @property
    def ids(self) -> frozenset[int]:
        """Of all objects that were met."""
        return frozenset(self._met)

    def _run(self) -> None:
        while True:
            while self._todo:
                value, at = self._todo.popleft()
                if len(self._met) > MOST:
                    self.unknown[f"more than {MOST:,} objects"] = None
                    return
                self._value(value, at)
            if not self._widen():
                break
        self._paths.settle(self._used)
        if self._used & PRINTING:
            self.parts.append(ReadValue("how NumPy or torch prints", printed))
        for logger in self._loggers if self._used & LEVELS else ():
            level = functools.partial(level_of, logger)
            self.parts.append(ReadValue(f"the level of the logger {logger.name}", level))

    def _widen(self) -> bool:
        """Names that code met since then uses, of objects that were walked before."""
        grown = False
        everything = bool(self._used & DYNAMIC)
        for owner, at, part in self._owners:
            state = part.state()
            wanted = (
                set(state) if everything or part.all else self._used & state.keys() | dunders(owner, state)
            )
            for name in sorted(wanted - part.kept.keys()):
                run = name not in NOT_RUN or (name in MAKING and id(owner) in self._named_by_code)
                if (id(owner), name) not in self._leave and run:
                    part.keep(name, state[name])
                    self._member(state[name], f"{at}.{name}")
                    grown = True
            if not isinstance(owner, type | types.ModuleType | types.FunctionType):
                for name in self._used - part.kept.keys() - state.keys():
                    part.keep(name, GONE)
        return grown

    def _member(self, value: Any, at: str) -> None:
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        elif isinstance(value, property):
            self._todo += [(each, at) for each in (value.fget, value.fset) if each is not None]
            return
        elif isinstance(value, functools.cached_property):
            value = value.func
        self._todo.append((value, at))

    def _value(self, value: Any, at: str) -> None:
        if isinstance(value, str | pathlib.PurePath):
            self._paths.meet(str(value))
        if isinstance(value, types.ModuleType):
            self._held_module(value, at)
            return
        if isinstance(value, type):
            self._named_by_code.update(map(id, value.__mro__))
        plain = self._is_library(type(value))  # else it has attributes, whatever its class extends
        if isinstance(value, logging.Logger):
            self._loggers[value] = None
        if (plain and isinstance(value, (*CONSTANT, *IDLE))) or id(value) in self._met:
            return
        self._met[id(value)] = value
        # Also a plain tensor takes attributes, and a masked array has its mask among them.
        attributed = not plain or bool(getattr(value, "__dict__", None))
        if attributed and isinstance(value, (*CONSTANT, *IDLE, *EXTENDED)):
            self._object(value, at)
        if isinstance(value, random.SystemRandom):
            self.unknown[f"{at} draws random numbers of the system"] = None
            return
        for kind, read in GENERATORS:
            if isinstance(value, kind):
                self.parts.append(ReadValue(at, functools.partial(read, value)))
                return
        if isinstance(value, weakref.ref):  # what it leads to must not be kept alive by being walked
            self.unknown[f"{at} is a weak reference"] = None
            return
        if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
            self._code(value, at)
        elif isinstance(value, BY_NAME):
            self._used.update(".".join(filter(is_text, value.__reduce__()[1])).split("."))
        elif isinstance(value, (*CONSTANT, *IDLE)):
            return
        elif isinstance(value, functools.partial):
            self._todo += [(value.func, at), (value.args, f"{at}.args"), (value.keywords, f"{at}.keywords")]
        elif isinstance(value, list | tuple | dict | set | frozenset | collections.deque):
            self._container(value, at)
        elif isinstance(value, np.ndarray):
            self._array(value, at)
        elif isinstance(value, torch.Tensor):
            self._tensor(value, at)
        elif isinstance(value, bytearray | memoryview):
            self.parts += Bytes.of(at, np.frombuffer(value, np.uint8))
        elif isinstance(value, CELLS):
            self.parts.append(ReadValue(at, lambda: value.value, often=True))
        elif isinstance(value, C_MEMORY):
            self.parts += Bytes.of(at, np.frombuffer(memoryview(value), np.uint8))
        elif isinstance(value, io.IOBase):
            self._paths.meet(str(getattr(value, "name", "")))
        else:
            self._object(value, at)

    def _container(self, value: Any, at: str) -> None:
        if not isinstance(value, tuple | frozenset):
            self.parts += Entries.of(at, value)
        keys = inner = list(entries_of(value))
        if isinstance(value, dict):
            inner = [dict.get(value, key) for key in keys]
        if isinstance(value, collections.defaultdict):
            self.parts.append(ReadValue(f"{at}.default_factory", lambda: value.default_factory))
            self._todo.append((value.default_factory, f"{at}.default_factory"))
        if not NUMBERS.issuperset(map(type, inner)):
            told = map(short, keys) if isinstance(value, dict) else range(len(inner))
            self._todo += [(each, f"{at}[{key}]") for key, each in zip(told, inner, strict=True)]

    def _array(self, value: np.ndarray[Any, Any], at: str) -> None:
        if value.dtype.hasobject:
            self._todo.append((value.ravel().tolist(), at))
            self.parts.append(ReadValue(at, lambda: [id(each) for each in value.ravel().tolist()]))
            return
        self.memory.append(np.lib.array_utils.byte_bounds(value) if value.size else (0, 0))
        own_view = type(value) in (np.ndarray, np.memmap)  # to cut another kind may run its own code
        self.parts += Bytes.of(at, value if own_view else value.view(np.ndarray))
        if isinstance(value, np.memmap) and value.filename is not None:
            self._paths.meet(str(value.filename))

    def _tensor(self, value: torch.Tensor, at: str) -> None:
        if not value.is_inference():
            self.parts.append(Version(at, value))
        plain = value.device.type == "cpu" and value.layout is torch.strided and not value.is_quantized
        if not plain or value.is_conj() or value.is_neg():
            self.unknown[f"{at} is a tensor on {value.device} with layout {value.layout}"] = None
            return
        raw = torch.empty(0, dtype=torch.uint8).set_(value.untyped_storage())
        if raw.numel():
            self.memory.append((raw.data_ptr(), raw.data_ptr() + raw.numel()))
            self.parts += Bytes.of(at, raw.numpy())

    def _object(self, value: Any, at: str) -> None:
        kind, own = type(value), not self._is_library(type(value))
        if isinstance(value, BaseProxy):
            self.unknown[f"{at} is an object of another process"] = None
            return
        if own:
            self.parts.append(ReadValue(f"the class of {at}", weakly(value), quick=True))
        slots = slots_of(kind)
        if hasattr(value, "__dict__") or slots:
            # By its dict, not by the object: whoever watches a dataset must not keep it alive.
            state = (
                functools.partial(state_of, value, slots) if slots else functools.partial(itself, vars(value))
            )
            part = Names(at, state, all_names=not own)
            self.parts.append(part)
            self._owners.append((value, at, part))
        elif not isinstance(value, (*CONSTANT, *EXTENDED)):
            self._opaque(value, at)
        self._classes((*kind.__mro__, *map(type, kind.__mro__)))

    def _opaque(self, value: Any, at: str) -> None:
        """An object of a C library: by its pickle, where it has one."""
        name = f"{at}, a {type(value).__module__}.{type(value).__qualname__}"
        try:
            content = pickle.dumps(value, 5)
        except Exception:
            self.unknown[name] = None
            return
        if len(content) > MOST_PICKLED:
            self.unknown[name] = None
        else:
            self.parts.append(ReadValue(at, lambda: pickle.dumps(value, 5)))

    def _code(self, value: Any, at: str) -> None:
        if isinstance(value, types.MethodType):
            self._todo += [(value.__func__, at), (value.__self__, at)]
        elif isinstance(value, types.BuiltinFunctionType):
            if value.__self__ is not None:
                self._todo.append((value.__self__, at))
        elif is_library(value):
            return
        elif isinstance(value, type):
            part = Names(at, functools.partial(vars, value))
            self.parts.append(part)
            self._owners.append((value, at, part))
            self.parts.append(ReadValue(f"the bases of {at}", lambda: value.__bases__))
            self._classes((*value.__mro__, type(value)))
        else:
            self._function(value)

    def _classes(self, classes: Iterable[type]) -> None:
        """Of the user's, without what makes their objects."""
        for each in classes:
            if not self._is_library(each) and id(each) not in self._met:
                self._met[id(each)] = each
                self._code(each, each.__name__)

    def _is_library(self, kind: type) -> bool:
        known = self._libraries.get(kind)
        if known is None:
            known = self._libraries[kind] = is_library(kind)
        return known

    def _function(self, function: types.FunctionType) -> None:
        at = function.__qualname__
        self.parts.append(Cells(at, function))
        self._todo += [
            (each, f"{at}'s defaults") for each in (function.__defaults__, function.__kwdefaults__) if each
        ]
        held = Names(
            at, functools.partial(vars, function), all_names=True
        )  # attributes, and what `wraps` leaves
        self.parts.append(held)
        self._owners.append((function, at, held))
        names, read = list(names_in(function.__code__)), set(globals_in(function.__code__))
        for text in texts_in(function.__code__):
            self._paths.meet(text)
            self._used.update(formatted_in(text))
        self._used.update(names)
        self.unknown |= dict.fromkeys(f"{at} {does}" for does in of_names(names, read))
        for name in imports_in(function.__code__):
            if name in sys.modules:
                self._global(sys.modules[name], name, names, at)
        held = Names("", lambda: function.__globals__)
        for name in sorted(read):
            if name in function.__globals__:
                held.keep(name, function.__globals__[name])
                self._global(function.__globals__[name], name, names, at)
            elif hasattr(builtins, name):
                self._builtin(name, names, at)
            else:
                held.keep(name, GONE)
        self.parts.append(held)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._global(cell.cell_contents, name, names, at)
            except ValueError:  # not filled yet
                continue

    def _builtin(self, name: str, names: list[str], at: str) -> None:
        """Whoever puts a name into `builtins` gives it to all modules."""
        if name not in self._builtins.kept:
            self._builtins.keep(name, vars(builtins)[name])
            self._global(vars(builtins)[name], name, names, at)

    def _global(self, value: Any, name: str, names: list[str], at: str) -> None:
        if isinstance(value, types.ModuleType):
            self._module(value, name, names, at)
            return
        if value is os.environ:
            self._watch_environment()
            return
        named = str(getattr(value, "__name__", ""))
        does = [of_module(str(getattr(value, "__module__", "") or ""))] if callable(value) else []
        self.unknown |= dict.fromkeys(f"{at} {each}" for each in (*does, *of_names([named], [named])) if each)
        if named == "getenv":
            self._watch_environment()
        self._todo.append((value, name))

    def _module(self, module: types.ModuleType, name: str, names: list[str], at: str) -> None:
        """What the code may use of it; what lies deeper in a library is taken to be constant."""
        if (id(module), at) in self._modules:
            return
        self._modules.add((id(module), at))
        own, root = not is_library(module), module.__name__.partition(".")[0]
        if does := of_module(root, names):
            self.unknown[f"{at} {does}"] = None
        if root == "os" and {"environ", "getenv", "expandvars", "expanduser"} & set(names):
            self._watch_environment()
        for told, read in modes_in(root, names):
            self.parts.append(ReadValue(told, read, often=True))
        held = Names(name, functools.partial(vars, module))
        for used in dict.fromkeys(names):
            inner = vars(module).get(used, GONE)
            if inner is GONE or inner is os.environ:
                continue
            held.keep(used, inner)
            if own or isinstance(inner, types.ModuleType):
                rest = [other for other in names if other != used]
                self._global(inner, f"{name}.{used}", rest, at)
            elif type(inner) is list:  # sys.argv
                self.parts += Entries.of(f"{name}.{used}", inner)
        self.parts.append(held)

    def _held_module(self, module: types.ModuleType, at: str) -> None:
        """A module of the user's that an object holds: any code may use it."""
        if not is_library(module) and id(module) not in self._met:
            self._met[id(module)] = module
            part = Names(at, functools.partial(vars, module))
            self.parts.append(part)
            self._owners.append((module, at, part))

    def _watch_environment(self) -> None:
        if not self._environment:
            self._environment = True
            self.parts.append(ReadValue("the environment", lambda: dict(os.environ)))


# What code can read that no object shows: clocks, networks, its process, names made at run time, switches.


_MODULES = {
    **dict.fromkeys(("time", "datetime"), "reads the clock"),
    **dict.fromkeys(("uuid", "secrets"), "draws random numbers of the system"),
    **dict.fromkeys(("socket", "http", "urllib", "requests", "httpx", "aiohttp"), "uses the network"),
    **dict.fromkeys(("subprocess",), "starts other programs"),
    **dict.fromkeys(("psutil", "resource"), "asks what its process uses"),
    **dict.fromkeys(("gc", "inspect"), "looks at objects of the whole process"),
    **dict.fromkeys(("importlib",), "finds modules by name"),
    **dict.fromkeys(("sqlite3", "lmdb", "psycopg2", "pymysql", "pymongo", "redis"), "reads a database"),
}
_NAMES = {
    **dict.fromkeys(
        ("getpid", "getppid", "current_process", "parent_process", "active_children"), "asks for its process"
    ),
    **dict.fromkeys(("current_thread", "main_thread", "get_ident", "get_native_id"), "asks for its thread"),
    **dict.fromkeys(("_getframe", "currentframe", "_current_frames"), "reads what its callers hold"),
    "get_worker_info": "asks which worker it is in",
    "urandom": "draws random numbers of the system",
    "__subclasses__": "asks for the subclasses of a class",
    **dict.fromkeys(("pread", "preadv", "readv", "fdopen"), "reads a file by its number"),
}
_MEMBERS = {
    ("sys", "modules"): "finds modules by name",
    ("os", "read"): "reads a file by its number",
    ("os", "umask"): "asks for its process",
}
_MODES: dict[tuple[str, str], Callable[[], object]] = {
    ("torch", "is_grad_enabled"): torch.is_grad_enabled,
    ("torch", "is_inference_mode_enabled"): torch.is_inference_mode_enabled,
    ("torch", "get_num_threads"): torch.get_num_threads,
    ("torch", "are_deterministic_algorithms_enabled"): torch.are_deterministic_algorithms_enabled,
    ("os", "getcwd"): os.getcwd,
    ("gc", "isenabled"): gc.isenabled,
    ("sys", "getrecursionlimit"): sys.getrecursionlimit,
}
_BUILTINS = dict.fromkeys(("globals", "eval", "exec"), "makes names of globals at run time")


def switches() -> tuple[object, ...]:
    """Of torch, that many items compute with: a script may set them while it runs, or for the length of a `with`. A
    default device is a mode on the stack; to ask torch for it takes ten times as long."""
    stack = torch._C._len_torch_function_stack()
    device = _default_device() if stack else None
    return torch.get_default_dtype(), torch.is_autocast_enabled("cpu"), stack, device


def _default_device() -> object:
    held = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    known = getattr(getattr(held, "device_context", None), "device", None)
    return known or torch.get_default_device()


def slow_switches() -> tuple[object, ...]:
    """Of others; these take longer to read."""
    context = decimal.getcontext()
    return context.prec, context.rounding, locale.setlocale(locale.LC_ALL), np.geterr()


def printed() -> tuple[object, ...]:
    """How arrays and tensors are written as text."""
    return np.get_printoptions(), dict(vars(torch._tensor_str.PRINT_OPTS))


def modes_in(root: str, names: Collection[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    """Switches of a module that code asks for by these names."""
    yield from ((f"{root}.{name}()", _MODES[root, name]) for name in sorted(names) if (root, name) in _MODES)


def of_module(name: str, names: Collection[str] = ()) -> str:
    """What code does that uses something of this module, and mentions these names; empty where that is nothing."""
    root = name.partition(".")[0]
    return _MODULES.get(root, "") or next(
        (_MEMBERS[root, each] for each in names if (root, each) in _MEMBERS), ""
    )


def of_names(names: Collection[str], read: Collection[str]) -> Iterator[str]:
    """What code does that mentions these names, some of which it reads as globals."""
    yield from (_NAMES[name] for name in sorted(_NAMES.keys() & set(names)))
    yield from (_BUILTINS[name] for name in sorted(_BUILTINS.keys() & set(read)))
