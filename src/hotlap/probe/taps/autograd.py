"""Listens at the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from hotlap.probe import boundary, marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session, ask, now

_ENTER, _LEAVE = marks.enter(Kind.BACKWARD), marks.leave(Kind.BACKWARD)


def install(session: Session, epilogue: Epilogue) -> None:
    around = functools.partial(_around, session, epilogue)
    session.wrap(torch.autograd, "backward", around, while_compiling=False)
    session.wrap(torch.autograd, "grad", session.timed(Kind.BACKWARD), while_compiling=False)
    boundary.attempt(_install_collectives, session)


def _around(session: Session, epilogue: Epilogue, original: Callable[..., Any]) -> Callable[..., Any]:
    append, origin, control, sampler = session.append, session.origin, session.control, session.sampler
    listeners = session.backward_begins

    @functools.wraps(original)
    def passed(*args: Any, **kwargs: Any) -> Any:
        steps = control.steps
        if not steps:
            session.train_here()
        if sampler.idle:
            session.start()
        if session.thread != get_ident():
            return original(*args, **kwargs)
        if listeners:
            ask(listeners, args[0] if args else kwargs.get("tensors"))
        append((now() - origin) << 8 | _ENTER)
        try:
            result = original(*args, **kwargs)
        finally:
            append((now() - origin) << 8 | _LEAVE)
        if not steps:
            _without_a_step(session, epilogue)
        return result

    return passed


def _without_a_step(session: Session, epilogue: Epilogue) -> None:
    if boundary.attempt(session.accumulation.goes_on):
        session.fact(0, marks.CONTINUES)
        return
    done = session.control.backward_made()
    if session.feed is not None:
        session.feed.step_made()
    if done:
        epilogue.step_made()


def _install_collectives(session: Session) -> None:
    """Collectives that the script calls itself; those of DDP run inside backward."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in ("all_reduce", "all_gather", "broadcast", "reduce", "reduce_scatter_tensor", "barrier"):
        if hasattr(distributed_c10d, name):
            session.wrap(torch.distributed, name, session.timed(Kind.COMM), while_compiling=False)
