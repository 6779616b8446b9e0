"""Layers around the calls of one module. The compiler may trace through them, so they are as plain as can be."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hotlap.ports.target import Layer, Undo
from hotlap.ports.unseen import unseen
from hotlap.probe.taps.root import RootTap
from hotlap.seams.training import layered

SLOT = "_compiled_call_impl"  # what `Module.__call__` prefers; `Module.__getstate__` leaves it out of every checkpoint
_is_compiling = torch.compiler.is_compiling


@dataclass(eq=False)
class Entry:
    """A layer, whether the compiler meets it, and whether it is the compiler's or keeps it out."""

    layer: Layer
    traced: bool
    compiles: bool | None


class RootCall:
    """Stands in the module's slot and calls what would have been called, with layers around it.

    The module is held weakly: a layer must not keep a model alive that the script lets go. `compiles` tells
    the probe, which takes whatever stands in the slot for a compiled module.
    """

    def __init__(self, module: torch.nn.Module, before: Callable[..., Any] | None) -> None:
        self.module = weakref.ref(module)
        self.before = before
        self.inner: list[Entry] = []
        self.outer: list[Entry] = []
        self.call = self.when_traced = self.plain

    @property
    def compiles(self) -> bool:
        said = [each.compiles for each in (*self.inner, *self.outer) if each.compiles is not None]
        return said[-1] if said else self.before is not None

    @property
    def autocast(self) -> str | None:
        """The precision that a layer computes in, for the probe, which stands outside of it."""
        said = [getattr(each.layer, "autocast", None) for each in (*self.inner, *self.outer)]
        return next((each for each in said if each), None)

    @unseen
    def plain(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self.module()
        return (self.before or module._call_impl)(*args, **kwargs)

    @unseen
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.when_traced if _is_compiling() else self.call)(*args, **kwargs)

    def put_together(self) -> None:
        layers = [*self.inner, *self.outer]
        self.call = layered(self.plain, [each.layer for each in layers])
        self.when_traced = layered(self.plain, [each.layer for each in layers if each.traced])

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copied module starts without layers."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickled by a module that writes its whole `__dict__`: as None, which is the slot's default."""
        return _nothing, ()


def around(
    module: torch.nn.Module,
    layer: Layer,
    *,
    innermost: bool = False,
    traced: bool = False,
    compiles: bool | None = None,
) -> Undo:
    """Put a layer around each call of a module, inside of the probe's tap where there is one."""
    call = root_call(module) or _placed(module)
    layers = call.inner if innermost else call.outer
    entry = Entry(unseen(layer), traced, compiles)
    layers.append(entry)
    call.put_together()
    return _undo(weakref.ref(call), weakref.ref(entry))


def _undo(held: weakref.ref[RootCall], held_entry: weakref.ref[Entry]) -> Undo:
    """Without a strong reference: whoever keeps it must not keep a model alive that the script lets go."""

    def undo() -> None:
        call, entry = held(), held_entry()
        if call is None or entry is None or entry not in (*call.inner, *call.outer):
            return
        (call.inner if entry in call.inner else call.outer).remove(entry)
        call.put_together()
        module = call.module()
        if module is not None and not call.inner and not call.outer:
            _taken_away(module, call)

    return undo


def root_call(module: torch.nn.Module) -> RootCall | None:
    """The layers of a module, also where the probe's tap stands around them."""
    found = module.__dict__.get(SLOT)
    found = found.compiled if isinstance(found, RootTap) else found
    return found if isinstance(found, RootCall) else None


def _placed(module: torch.nn.Module) -> RootCall:
    found = module.__dict__.get(SLOT)
    if isinstance(found, RootTap):
        found.compiled = call = RootCall(module, found.compiled)
    else:
        module.__dict__[SLOT] = call = RootCall(module, found)
    return call


def _taken_away(module: torch.nn.Module, call: RootCall) -> None:
    found = module.__dict__.get(SLOT)
    if isinstance(found, RootTap) and found.compiled is call:
        found.compiled = call.before
    elif found is call:
        if call.before is None:
            del module.__dict__[SLOT]
        else:
            module.__dict__[SLOT] = call.before


def _nothing() -> None:
    return None
