"""Listens at root modules: a forward pass is a call of a module that no other module holds.

The roots are found by walking the live objects before the first batch and the first step, not by patching
`Module.__call__`: that would cost every submodule's call, and the compiler compares that very function by identity.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

import torch
from torch.jit import _recursive
from torch.nn import Module

from hotlap.probe import boundary, marks
from hotlap.probe.portrait import model_portrait, user_frames
from hotlap.probe.session import Session
from hotlap.probe.taps.root import RootTap

_SLOT = "_compiled_call_impl"  # what `Module.__call__` prefers; `Module.__getstate__` leaves it out of every checkpoint
_MOST_ROOTS = 256
_LAST_SCAN = 3  # steps


class ModelTap:
    """Keeps a tap on every root module."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.taps: list[RootTap] = []
        self.steps = 0
        self.switching = 0  # depth of train()/eval() calls, which recurse
        self._loop: set[CodeType] = set()  # functions of the user's that are on the stack in a step

    def scan(self) -> None:
        """Tap the modules that are nobody's child, and release those that became one."""
        kinds = _module_kinds()
        modules = [each for each in gc.get_objects() if type(each) in kinds and "_modules" in each.__dict__]
        held = {id(child) for module in modules for child in module._modules.values() if child is not None}
        for module in modules:
            tapped = isinstance(module.__dict__.get(_SLOT), RootTap)
            if id(module) in held:
                if tapped:
                    self.release(module)
            elif not tapped and len(self.taps) < _MOST_ROOTS:
                self.hold(module)
        self.taps = [tap for tap in self.taps if tap.module() is not None]

    def hold(self, module: Module) -> None:
        tap = RootTap(module, module.__dict__.get(_SLOT), self.session)
        module.__dict__[_SLOT] = tap
        self.taps.append(tap)

    def release(self, module: Module) -> None:
        tap = module.__dict__.pop(_SLOT)
        self.taps.remove(tap)
        if tap.compiled is not None:
            module.__dict__[_SLOT] = tap.compiled

    def release_all(self) -> None:
        for tap in [*self.taps]:
            module = tap.module()
            if module is not None and module.__dict__.get(_SLOT) is tap:
                self.release(module)

    def step_begins(self) -> bool:
        """Look again before the first step, when all wrappers are built, and once more where no root was called."""
        self.steps += 1
        if self.steps == 1:
            self._loop = {frame.f_code for frame in user_frames(sys._getframe(1))}
        unseen = self.steps == _LAST_SCAN and not any(tap.described for tap in self.taps)
        if self.steps == 1 or (unseen and "framework" not in self.session.facts):
            self.scan()
        return self.steps < _LAST_SCAN

    def evaluates(self, frame: FrameType) -> None:
        """Note the call that starts a validation: the line of the training loop that led here."""
        if self._loop and "validation_place" not in self.session.facts:
            frames = user_frames(frame)
            calling = next((each for each in frames if each.f_code in self._loop), None)
            if calling is not None:
                code = calling.f_code
                place = [code.co_filename, calling.f_lineno, code.co_qualname]
                self.session.facts["validation_place"] = place

    def describe(self) -> None:
        """The called root with the most parameters is the model.

        Lightning calls `training_step` and never the root: then it is the one that an optimizer trains.
        """
        alive = [(tap, module) for tap in self.taps if (module := tap.module()) is not None]
        called = [each for each in alive if each[0].described]
        trained = self.session.accumulation.first_parameters()
        met = called or [each for each in alive if trained & {id(one) for one in each[1].parameters()}]
        if not met:
            return
        tap, root = max(met, key=lambda each: sum(parameter.numel() for parameter in each[1].parameters()))
        portrait = model_portrait(root)
        # What a plan has put there says by itself whether it compiles.
        portrait["compiled"] |= getattr(tap.compiled, "compiles", tap.compiled is not None)
        self.session.facts["model"] = portrait
        autocasts = [tap.autocast or getattr(tap.compiled, "autocast", None) for tap in self.taps]
        if called:
            self.session.facts["autocast"] = next((each for each in autocasts if each), None)


def _module_kinds() -> set[type]:
    """Module and all classes below it: asking each live object for its type is quicker than any isinstance."""
    kinds: set[type] = set()
    pending: list[type] = [Module]
    while pending:
        kind = pending.pop()
        if kind not in kinds:
            kinds.add(kind)
            pending += type.__subclasses__(kind)
    return kinds


def install(session: Session) -> ModelTap:
    for name in (_SLOT, "_call_impl"):
        getattr(
            Module, name
        )  # where a release has neither any more, the error comes here, and not in a forward pass
    tap = ModelTap(session)
    session.wrap(Module, "compile", functools.partial(_around_compile, tap))
    session.wrap(Module, "train", functools.partial(_around_train, tap))
    session.wrap(Module, "_replicate_for_data_parallel", _around_replicate)
    if hasattr(_recursive, "infer_concrete_type_builder"):
        session.wrap(_recursive, "infer_concrete_type_builder", _around_scripting)
    session.first_batch.append(tap.scan)
    session.step_begins.append(tap.step_begins)
    session.portraits.append(tap.describe)
    session.on_detach(tap.release_all)
    return tap


def _around_compile(tap: ModelTap, original: Callable[..., None]) -> Callable[..., None]:
    """`module.compile()` writes into our slot: listen around what it wrote."""

    @functools.wraps(original)
    def compiled(self: Module, *args: Any, **kwargs: Any) -> None:
        tapped = isinstance(self.__dict__.get(_SLOT), RootTap)
        original(self, *args, **kwargs)
        if tapped:
            boundary.attempt(tap.hold, self)

    return compiled


def _around_train(tap: ModelTap, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def switched(self: Module, mode: bool = True) -> Any:
        if torch.compiler.is_compiling() or get_ident() != tap.session.thread:
            return original(self, mode)
        if not tap.switching:
            tap.session.mark(marks.TRAIN_ON if mode else marks.EVAL_ON)
            if not mode:
                boundary.attempt(tap.evaluates, sys._getframe(1))
                for listener in tap.session.eval_begins:
                    boundary.attempt(listener)
        tap.switching += 1
        try:
            return original(self, mode)
        finally:
            tap.switching -= 1

    return switched


def _around_replicate(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replica copies the whole `__dict__`; a tap in it would call the original module instead."""

    @functools.wraps(original)
    def replicated(self: Module) -> Any:
        replica = original(self)
        tap = replica.__dict__.get(_SLOT)
        if isinstance(tap, RootTap):
            replica.__dict__[_SLOT] = tap.compiled
        return replica

    return replicated


def _around_scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.jit.script` reads every attribute of a module and refuses those that it cannot type."""

    @functools.wraps(original)
    def read(nn_module: Module, *args: Any, **kwargs: Any) -> Any:
        tap = nn_module.__dict__.get(_SLOT)
        if not isinstance(tap, RootTap) or tap.compiled is not None:
            return original(nn_module, *args, **kwargs)
        del nn_module.__dict__[_SLOT]
        try:
            return original(nn_module, *args, **kwargs)
        finally:
            nn_module.__dict__[_SLOT] = tap

    return read
