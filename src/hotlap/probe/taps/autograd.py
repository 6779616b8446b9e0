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

COLLECTIVES = (
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single",
    "barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "reduce", "reduce_scatter",
    "reduce_scatter_tensor", "scatter",
)  # fmt: skip
_ENTER, _LEAVE = marks.enter(Kind.BACKWARD), marks.leave(Kind.BACKWARD)


def install(session: Session, epilogue: Epilogue) -> None:
    around = functools.partial(_around, session, epilogue)
    session.wrap(torch.autograd, "backward", around, while_compiling=False)
    session.wrap(torch.autograd, "grad", functools.partial(_around_grad, session), while_compiling=False)
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
            if session.device is not None:
                session.device.switch(marks.DEVICE_GAP)
        if not steps:
            _without_a_step(session, epilogue)
        return result

    return passed


def _around_grad(session: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    timed = session.timed(Kind.BACKWARD)(original)

    @functools.wraps(original)
    def handed_out(*args: Any, **kwargs: Any) -> Any:
        if session.thread != get_ident():
            return original(*args, **kwargs)
        clock = session.device
        outer = clock.switch(marks.DEVICE_BACKWARD) if clock is not None else 0
        result = timed(*args, **kwargs)
        if clock is not None:
            clock.switch(outer)
        session.fact(0, marks.GRADIENTS)
        return result

    return handed_out


def _without_a_step(session: Session, epilogue: Epilogue) -> None:
    if boundary.attempt(session.accumulation.goes_on):
        session.fact(0, marks.CONTINUES)
        return
    done = session.control.backward_made()
    if session.control.without_optimizer:
        ask(session.step_ends)
    if session.control.without_optimizer == 1:
        session.describe_runtime()
    if session.feed is not None:
        session.feed.step_made()
    if done:
        epilogue.step_made()


def _install_collectives(session: Session) -> None:
    """Collectives that the script calls itself; those of DDP run inside backward."""
    if not torch.distributed.is_available():
        return
    from torch.distributed import distributed_c10d

    for name in COLLECTIVES:
        if hasattr(distributed_c10d, name):
            session.wrap(torch.distributed, name, session.timed(Kind.COMM), while_compiling=False)
