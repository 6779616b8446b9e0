"""Puts every tap in place, once torch is there."""

from __future__ import annotations

import atexit
import os
from pathlib import Path

from hotlap.probe import boundary, calibrate, device, pages
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.feed import Feed
from hotlap.probe.phases import phases
from hotlap.probe.session import Session
from hotlap.probe.taps import (
    autograd,
    calls,
    collector,
    files,
    loader,
    model,
    optimizer,
    origins,
    sync,
    transfer,
    worker,
)

_TAPS = (worker, model, origins, transfer, sync, files, collector, calibrate, pages, device)


def attach(folder: Path, origin: int, phase_names: list[str]) -> Session:
    """The session of this process; the compiler's tap follows when the compiler is imported."""
    session = Session(folder, origin)
    epilogue = Epilogue(session)
    if phase_names:
        session.feed = Feed()
        for phase in phases(session, session.feed, phase_names):
            epilogue.add(phase)
    session.endings.append(epilogue.close)
    for tap in _TAPS:
        boundary.attempt(tap.install, session)
    for ending_tap in (loader, calls, autograd, optimizer):
        boundary.attempt(ending_tap.install, session, epilogue)
    os.register_at_fork(before=session.before_fork, after_in_child=session.after_fork_in_child)
    atexit.register(session.end)
    return session
