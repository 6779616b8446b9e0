"""Puts every tap in place, once torch is there."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from hotlap.probe import boundary, calibrate
from hotlap.probe.session import Session
from hotlap.probe.taps import autograd, collector, files, loader, model, optimizer, sync, transfer, worker

_TAPS = (loader, worker, model, autograd, optimizer, transfer, sync, files, collector, calibrate)


def attach(folder: Path, origin: int) -> Session:
    """The session of this process; the compiler's tap follows when the compiler is imported."""
    session = Session(folder, origin)
    for tap in _TAPS:
        boundary.attempt(tap.install, session)
    os.register_at_fork(before=session.before_fork, after_in_child=session.after_fork_in_child)
    atexit.register(session.end)
    return session
