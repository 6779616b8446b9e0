"""Listens at the backward pass."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from hotlap.probe import boundary, marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.marks import Kind
from hotlap.probe.session import Session


def install(session: Session, epilogue: Epilogue) -> None:
    around = functools.partial(_around, session, epilogue)
    session.wrap(torch.autograd, "backward", around, while_compiling=False)
    session.wrap(torch.autograd, "grad", session.timed(Kind.BACKWARD), while_compiling=False)
    boundary.attempt(_install_collectives, session)


def _around(session: Session, epilogue: Epilogue, original: Callable[..., Any]) -> Callable[..., Any]:
    timed = session.timed(Kind.BACKWARD)(original)
    control, sampler = session.control, session.sampler

    @functools.wraps(original)
    def passed(*args: Any, **kwargs: Any) -> Any:
        if not control.steps:
            session.train_here()
        if sampler.idle:
            session.start()
        if session.device is not None:
            boundary.attempt(session.device.lap, marks.DEVICE_FORWARD)
        result = timed(*args, **kwargs)
        if not control.steps:
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
