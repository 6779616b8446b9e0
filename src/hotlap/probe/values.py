"""What a line's values are: types, shapes and devices by name, read off a frame while the sampler looks at it.

Nothing of the script is called, and nothing is kept of its values but these words.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

_MOST_NAMES, _MOST_ENTRIES, _MOST_BASES = 96, 24, 6
_LOOKS_ITSELF = frozenset({"locals", "vars", "dir", "eval", "exec", "breakpoint"})
_OF_FRAMES = frozenset({"_getframe", "currentframe"})
"""Functions that use these could meet the dictionary in which Python hands out a frame's variables."""
_WITHIN = frozenset({"<listcomp>", "<genexpr>", "<setcomp>", "<dictcomp>", "<lambda>"})
_MODULE_LIST = "torch.nn.modules.container.ModuleList"
_PARTS = ("_parameters", "_buffers", "_modules")  # where a module keeps its attributes


def values_of(frame: FrameType, *, traced: bool = False) -> dict[str, str]:
    """By name, such as `x`, `self.x` or `batch['x']`, what it is; of the enclosing function too.

    Not for a thread that has a trace function: Python writes the dictionary of variables back to the frame behind each
    call of it. With `traced`, the trace function itself is asking, and the dictionary is left as it is.
    """
    found: dict[str, str] = {}
    names = set(frame.f_code.co_names)
    around = frame.f_back
    within = frame.f_code.co_name in _WITHIN
    if within and around is not None and around.f_code.co_filename == frame.f_code.co_filename:
        names |= set(around.f_code.co_names)
        _read(around, names, found, traced)
    _read(frame, names, found, traced)
    return found


def _read(frame: FrameType, names: set[str], found: dict[str, str], traced: bool) -> None:
    code = frame.f_code
    if _looks_itself(code) or (frame.f_trace is not None and not traced):
        return
    shared = frame.f_globals
    for name in names:
        known = name in found  # a variable of the enclosing function, which hides a global one
        if name in shared and not known and not isinstance(shared[name], ModuleType | FunctionType | type):
            _tell(name, shared[name], names, found)
    if not code.co_flags & inspect.CO_OPTIMIZED:
        return  # a module's or a class's own statements: their variables are the globals
    held = frame.f_locals
    try:
        for name, value in list(held.items()):
            _tell(name, value, names, found)
    finally:
        if (
            type(held) is dict and not traced
        ):  # before Python 3.13 the frame keeps it, and with it every value, alive
            held.clear()


def _looks_itself(code: CodeType) -> bool:
    """Not for `model.eval()`: attributes are among a code's names too."""
    named = set(code.co_names)
    if not named & (_LOOKS_ITSELF | _OF_FRAMES):
        return False
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    called = {each.argval for each in dis.get_instructions(code) if each.opname in loads}
    return bool(called & _LOOKS_ITSELF or named & _OF_FRAMES)


def _tell(name: str, value: Any, names: set[str], found: dict[str, str]) -> None:
    if len(found) >= _MOST_NAMES or name.startswith("."):
        return
    found[name] = described(value)
    if type(value) is dict:
        for key, entry in list(value.items())[:_MOST_ENTRIES]:
            if isinstance(key, str):
                found[f"{name}[{key!r}]"] = described(entry)
        return
    for attribute, inner in _attributes(value):
        if attribute in names and len(found) < _MOST_NAMES:
            found[f"{name}.{attribute}"] = described(inner)


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Those in its own dictionary: to ask for others would run code of the script."""
    if type(value).__module__ in ("builtins", "torch", "numpy"):
        return
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return
    if type(own) is not dict:
        return
    yield from list(own.items())
    for part in _PARTS:
        if type(own.get(part)) is dict:
            yield from list(own[part].items())


def described(value: Any, *, inner: bool = True) -> str:
    """In words that `ports.rewrite.Value` reads."""
    kind = type(value)
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and kind in (torch.Tensor, torch.nn.Parameter):
        dtype = str(value.dtype).removeprefix("torch.")
        grad = " grad" if value.requires_grad else ""
        return f"torch.Tensor {dtype} {_shape(value.shape)} {value.device.type}{grad}"
    if numpy is not None and kind is numpy.ndarray:
        return f"numpy.ndarray {value.dtype} {_shape(value.shape)}"
    if kind in (list, tuple, dict):
        first = next(iter(value.values() if kind is dict else value), None)
        of = f" {described(first, inner=False)}" if inner and first is not None else ""
        return f"{kind.__name__} {len(value)}{of}"
    if kind.__module__ == "builtins":
        return kind.__name__
    bases = [_name(each) for each in kind.__mro__[1:] if each.__module__ != "builtins"]
    return " ".join([_name(kind), *bases[:_MOST_BASES], *_children(kind, value)])


def _children(kind: type, value: Any) -> list[str]:
    """Of a list of modules that are all of one type, that type: `each=torch.nn.modules.linear.Linear+bias`."""
    if _name(kind) != _MODULE_LIST:
        return []
    inner = [each for each in value.__dict__["_modules"].values() if each is not None]
    if not inner or len({type(each) for each in inner}) > 1:
        return []
    biases = {each.__dict__.get("_parameters", {}).get("bias") is not None for each in inner}
    if len(biases) > 1:
        return []
    return [f"each={_name(type(inner[0]))}{'+bias' if biases.pop() else ''}"]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}".replace(" ", "")


def _shape(shape: Any) -> str:
    return "x".join(str(int(each)) for each in shape) or "scalar"
