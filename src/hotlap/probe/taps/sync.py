"""Listens where the host waits for a value of a tensor: `.item()`, `.cpu()`, `float(t)`, `bool(t)`, printing one."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import torch

from hotlap.probe import boundary, marks
from hotlap.probe.accelerator import accelerator
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, now
from hotlap.probe.usercode import UserCode

_CALLS = {
    "item": ".item()",
    "cpu": ".cpu()",
    "numpy": ".numpy()",
    "tolist": ".tolist()",
    "__float__": "float()",
    "__int__": "int()",
    "__bool__": "bool()",
    "__repr__": "print",
    "__format__": "format",
}
_CONVERSIONS = ("float()", "int()")  # torch warns of them, once in a process, where gradients are wanted
_ENTER, _LEAVE = marks.enter(Kind.SYNC), marks.leave(Kind.SYNC)
_TORCH = str(Path(torch.__file__).parent) + os.sep
_MOST_PLACES = 1024
_MOST_PER_STEP = 64  # beyond that only counted: a loop over `.item()` must not pay for being watched
_MOST_DEPTH = 12


class SyncTap:
    """Counts and times synchronisations by the line of the user's code that made them."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.user = UserCode()
        self.places: dict[tuple[str, int, str, str], list[int]] = {}
        self.inside = False
        self.warned = False
        self._step = self._in_step = 0

    def made(self, frame: Any, call: str, spent: int) -> int | None:
        """The number of the place it was made in; None where that is not the user's code."""
        for _ in range(_MOST_DEPTH):
            if frame is None:
                return None
            if self.user.owns(frame.f_code):
                break
            frame = frame.f_back
        else:
            return None
        key = (
            frame.f_code.co_filename,
            frame.f_lineno or frame.f_code.co_firstlineno,
            frame.f_code.co_qualname,
            call,
        )
        known = self.places.get(key)
        if known is None:
            if len(self.places) >= _MOST_PLACES:
                return None
            known = self.places[key] = [len(self.places), 0, 0]
        known[1] += 1
        known[2] += spent
        return known[0]

    def in_this_step(self) -> int:
        """Counts a synchronisation, from the last step's end on."""
        if self._step != self.session.control.steps:
            self._step, self._in_step = self.session.control.steps, 0
        self._in_step += 1
        return self._in_step

    def describe(self) -> None:
        self.session.facts["syncs"] = [[*place, *known[1:]] for place, known in list(self.places.items())]


def install(session: Session) -> None:
    tap = SyncTap(session)
    for name, call in _CALLS.items():
        session.wrap(torch.Tensor, name, functools.partial(_around, tap, call), while_compiling=False)
    session.first_batch.append(functools.partial(_listen_at_device, session, tap))
    session.portraits.append(tap.describe)


def _listen_at_device(session: Session, tap: SyncTap) -> None:
    """Waits by intent; late, since a backend that is a package of its own is there only when the script imports it."""
    device = accelerator()
    for owner, name, call in device.waits if device is not None else ():
        session.wrap(owner, name, functools.partial(_around, tap, call), while_compiling=False)


def _shown_at(frame: FrameType, call: Callable[..., Any]) -> Any:
    """torch warns of the line that calls it, which is a wrapper's: its warning is passed on to the script's line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    names, code = frame.f_globals, frame.f_code
    for each in caught:
        warnings.warn_explicit(
            each.message,
            each.category,
            code.co_filename,
            frame.f_lineno,
            names.get("__name__", code.co_filename),
            names.setdefault("__warningregistry__", {}),
        )
    return result


def _around(tap: SyncTap, call: str, original: Callable[..., Any]) -> Callable[..., Any]:
    session, append, origin = tap.session, tap.session.append, tap.session.origin

    @functools.wraps(original)
    def waited(*args: Any, **kwargs: Any) -> Any:
        if tap.inside or get_ident() != session.thread:
            return original(*args, **kwargs)
        frame = sys._getframe(1)
        if frame.f_code.co_filename.startswith(_TORCH):
            return original(*args, **kwargs)  # torch looks at a value of its own, such as a step counter
        tap.inside = True  # printing a tensor calls .item() for each element
        started = now()
        try:
            if not tap.warned and call in _CONVERSIONS and args[0].requires_grad:
                tap.warned = True
                return _shown_at(frame, functools.partial(original, *args, **kwargs))
            return original(*args, **kwargs)
        finally:
            spent = now() - started
            tap.inside = False
            if session.device is not None:
                session.device.waited()
            place = boundary.attempt(tap.made, frame, call, spent)
            if tap.in_this_step() <= _MOST_PER_STEP:
                append((started - origin) << 8 | _ENTER)
                append((started + spent - origin) << 8 | _LEAVE)
                if place is not None:
                    append(place << 8 | marks.SYNC_PLACE)

    return waited
