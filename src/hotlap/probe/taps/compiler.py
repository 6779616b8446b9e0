"""Listens at torch.compile, and gets out of its way: while Dynamo traces, it meets torch as torch was.

Installed when `torch._dynamo` is imported, which the first optimizer does. Its callback class is patched rather than a
callback registered, since `torch._dynamo.reset()` clears those.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from hotlap.probe import boundary, marked, marks
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session
from hotlap.probe.taps import model, optimizer, root


def install(session: Session, module: ModuleType) -> None:
    if hasattr(module, "CompilationCallbackHandler"):
        handler = module.CompilationCallbackHandler
        session.wrap(handler, "run_start_callbacks", functools.partial(_around_start, session))
        session.wrap(handler, "run_end_callbacks", functools.partial(_around_end, session))
        session.portraits.append(functools.partial(_describe, session))
    else:
        # Frames of the probe are never worth compiling; what stays in place must be traced through where it is called.
        module.add("hotlap")
        module.BUILTIN_INLINE_WHEN_CALLED.update(each.__file__ for each in (marked, model, optimizer, root))


def _around_start(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def started(self: Any, *args: Any) -> None:
        boundary.attempt(_begin, session)
        original(self, *args)

    return started


def _around_end(session: Session, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def ended(self: Any, *args: Any) -> None:
        original(self, *args)
        boundary.attempt(_finish, session)

    return ended


def _begin(session: Session) -> None:
    session.note("compiles", session.facts.get("compiles", 0) + 1)
    for listener in session.compile_begins:
        listener()
    session.mark(marks.enter(Kind.COMPILE))
    session.pause()
    session.withdraw(builtins, "print")


def _finish(session: Session) -> None:
    session.resume()
    session.mark(marks.leave(Kind.COMPILE))


def _describe(session: Session) -> None:
    """Why code was compiled again, in Dynamo's own words. It remembers the last few dozen compilations."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    metrics = dynamo.get_compilation_metrics() if dynamo is not None else ()
    reasons = [getattr(each, "recompile_reason", None) for each in metrics]
    session.note("recompiles", [reason for reason in reasons if reason])
