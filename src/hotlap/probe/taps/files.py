"""Listens at `torch.save`, at Python's logging and at print."""

from __future__ import annotations

import builtins
import logging

import torch

from hotlap.probe.marks import Kind
from hotlap.probe.session import Session


def install(session: Session) -> None:
    session.wrap(torch, "save", session.held_back(session.timed(Kind.CHECKPOINT)), while_compiling=False)
    around = session.timed(Kind.LOG)
    session.wrap(logging.Logger, "handle", around)
    # The compiler guards builtins by identity: the compiler tap takes this one away for good when it first runs.
    session.wrap(builtins, "print", around, while_compiling=False)
