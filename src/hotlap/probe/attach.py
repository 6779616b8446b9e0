"""Puts every tap in place, once torch is there."""

from __future__ import annotations

import atexit
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hotlap.probe import boundary
from hotlap.probe.epilogue import Epilogue, Phase, phases
from hotlap.probe.feed import Feed
from hotlap.probe.session import Session

# Each is imported on its own: they meet names of torch that a release to come may not have.
_TAPS = {
    "taps.worker": "items and workers",
    "taps.model": "forward",
    "taps.origins": "where optimizers were built",
    "taps.transfer": "transfer",
    "taps.sync": "synchronisations",
    "taps.files": "open files",
    "taps.collector": "garbage collections",
    "calibrate": "the probe's own cost",
    "pages": "memory pages",
    "device": "time on the device",
}
_ENDING_TAPS = {
    "taps.loader": "data",
    "taps.calls": "calls of modules",
    "taps.autograd": "backward",
    "taps.optimizer": "optimizer",
}


def attach(
    folder: Path,
    origin: int,
    phase_names: list[str],
    experiments: Callable[[Session, Feed], Phase] | None = None,
) -> Session:
    """The session of this process; the compiler's tap follows when the compiler is imported.

    `experiments` makes the phase that comes first after the window; it belongs to a layer above.
    """
    session = Session(folder, origin)
    epilogue = Epilogue(session)
    if phase_names or experiments is not None:
        session.feed = Feed()
        if experiments is not None:
            epilogue.add(experiments(session, session.feed))
        for phase in phases(session, session.feed, phase_names):
            epilogue.add(phase)
    session.endings.append(epilogue.close)
    for tap, what in _TAPS.items():
        boundary.measuring(what, _install, tap, session)
    for tap, what in _ENDING_TAPS.items():
        boundary.measuring(what, _install, tap, session, epilogue)
    os.register_at_fork(before=session.before_fork, after_in_child=session.after_fork_in_child)
    atexit.register(session.end)
    return session


def _install(tap: str, *args: Any) -> None:
    importlib.import_module(f"hotlap.probe.{tap}").install(*args)
