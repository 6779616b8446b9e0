"""Listens at optimizers: the step, which ends a step of training, and what belongs to it."""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hotlap.probe import boundary, marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.portrait import optimizer_portrait
from hotlap.probe.session import Session, ask, now

_ENTER, _LEAVE = marks.enter(Kind.STEP), marks.leave(Kind.STEP)
_PORTRAIT_STEPS = frozenset({1, 5, 50})
_MOST_FRAMES = 12  # between a step and the `super().step()` inside it


class OptimizerTap:
    """Knows the optimizers of this process by number."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.portraits: list[dict[str, Any]] = []
        self.made: dict[int, int] = {}
        self.latest = self.before = -1  # the numbers of the last two that stepped
        self._recent: Callable[[], Optimizer | None] = lambda: None
        self._recent_number = -1
        self.open = self.depth = 0  # identity of the optimizer under way, and its steps inside its own step

    def number(self, optimizer: Optimizer) -> int:
        known = self.numbers.get(optimizer)
        if known is None:
            # Not the number of those that are alive: one that has gone would give its number to another.
            known = self.numbers[optimizer] = len(self.portraits)
            self.portraits.append(boundary.attempt(optimizer_portrait, optimizer) or {})
        # Most scripts have one optimizer; asking the dictionary is dearer.
        self._recent, self._recent_number = weakref.ref(optimizer), known
        return known

    def enters_again(self, optimizer: Optimizer) -> bool:
        """Whether it is a `super().step()` inside the optimizer's own step, which is one step and not two.

        The stack is asked too: a step that raised has never left.
        """
        if self.open == id(optimizer) and _is_inside_own_step(optimizer, sys._getframe(2)):
            self.depth += 1
            return True
        return False

    def leaves_again(self, optimizer: Optimizer) -> bool:
        if self.open == id(optimizer):
            self.depth -= 1
            return True
        return False

    def count(self, optimizer: Optimizer) -> int:
        """One more step of this optimizer, whose number is returned."""
        number = self._recent_number if self._recent() is optimizer else self.number(optimizer)
        self.made[number] = self.made.get(number, 0) + 1
        self.before, self.latest = self.latest, number
        return number

    def paces(self) -> bool:
        """Whether the step just made ends a step of training, as when marks are folded."""
        most = max(self.made.values(), default=0)
        # Of equals that take turns one is always a step ahead.
        pacemaker = max((number for number, count in self.made.items() if count >= most - 1), default=-1)
        return self.latest in (pacemaker, self.before)


def _is_inside_own_step(optimizer: Optimizer, wrapper: Any) -> bool:
    frame = wrapper.f_back
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return False
        if frame.f_code is wrapper.f_code and frame.f_locals.get("self") is optimizer:
            return True
        frame = frame.f_back
    return False


def install(session: Session, epilogue: Epilogue) -> None:
    tap = OptimizerTap(session)
    session.facts["optimizers"] = tap.portraits
    session.optimizers = lambda: list(tap.numbers)
    before = register_optimizer_step_pre_hook(_before(session, tap))
    after = register_optimizer_step_post_hook(_after(session, tap, epilogue))
    session.on_detach(before.remove)
    session.on_detach(after.remove)
    around = session.timed(Kind.OPTIMIZER)
    session.wrap(Optimizer, "__init__", functools.partial(_around_init, session))
    session.wrap(Optimizer, "zero_grad", around, while_compiling=False)
    session.wrap(torch.nn.Module, "zero_grad", around, while_compiling=False)
    for scheduler in (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau):
        session.wrap(scheduler, "step", around)
    for name in ("step", "update", "unscale_"):
        session.wrap(torch.amp.GradScaler, name, around)
    session.wrap(torch.amp.GradScaler, "__init__", functools.partial(_around_scaler, session))
    for name in ("clip_grad_norm_", "clip_grad_value_"):
        session.wrap(torch.nn.utils, name, around)


def _before(session: Session, tap: OptimizerTap) -> Callable[..., None]:
    append, origin, sampler = session.append, session.origin, session.sampler
    is_compiling, listeners = torch.compiler.is_compiling, session.step_begins

    def step_begins(optimizer: Optimizer, *_: Any) -> None:
        if is_compiling() or (tap.open and tap.enters_again(optimizer)):
            return
        tap.open, tap.depth = id(optimizer), 0
        if session.thread != get_ident():
            session.train_here()
        if sampler.idle:
            session.start()
        if listeners:
            ask(listeners)
        append((now() - origin) << 8 | _ENTER)

    return step_begins


def _after(session: Session, tap: OptimizerTap, epilogue: Epilogue) -> Callable[..., None]:
    append, origin, control = session.append, session.origin, session.control
    is_compiling, listeners = torch.compiler.is_compiling, session.step_ends

    def step_ends(optimizer: Optimizer, *_: Any) -> None:
        if is_compiling() or (tap.depth and tap.leaves_again(optimizer)):
            return
        append((now() - origin) << 8 | _LEAVE)
        tap.open = 0
        append((boundary.attempt(tap.count, optimizer) or 0) << 8 | marks.OPTIMIZER_ID)
        if listeners:
            ask(listeners)
        done = control.step_made()
        if control.steps in _PORTRAIT_STEPS:
            session.describe_runtime()
        if (done or session.feed is not None) and tap.paces():
            _training_step_made(session, epilogue, done)

    return step_ends


def _training_step_made(session: Session, epilogue: Epilogue, done: bool) -> None:
    if session.feed is not None:
        session.feed.step_made()
    if done:
        epilogue.step_made()


def _around_init(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        boundary.attempt(session.accumulation.built, self)

    return built


def _around_scaler(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.is_enabled():
            session.note("grad_scaler", True)

    return built
