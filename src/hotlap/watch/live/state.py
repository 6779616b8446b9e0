"""Whether a job runs: from its process, and from what its run folder holds by now."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import psutil

from hotlap.launch import runfolder

_ENDINGS = (runfolder.LAST_LOOK, runfolder.APPLIED, "diagnosis.json")
_PATIENCE_S = 20.0
"""After the last process of a job has gone, its report is written: only when none comes, the job was killed."""
_STALLED_S, _STALLED_STEPS = 60.0, 20.0


class State(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    STALLED = "stalled"
    ENDING = "ending"
    ENDED = "ended"
    KILLED = "killed"
    GONE = "gone"


def is_alive(pid: int, since: float) -> bool:
    """Whether the process is still the one that wrote at `since` (seconds since 1970), and not a later one."""
    try:
        process = psutil.Process(pid)
        dead = process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        return not dead and process.create_time() <= since + 1.0
    except psutil.Error:
        return False


def has_ended(run: Path) -> bool:
    return any((run / name).is_file() for name in _ENDINGS)


def state_of(run: Path, *, alive: bool, age_s: float | None, step_s: float | None) -> State:
    """`age_s` is how long ago something was written, None where nothing was; `step_s` what a step takes."""
    if not run.is_dir():
        return State.GONE
    if has_ended(run):
        return State.ENDED
    if not alive:
        young = age_s is None or age_s < _PATIENCE_S
        return (State.WAITING if age_s is None else State.ENDING) if young else State.KILLED
    slow = max(_STALLED_S, _STALLED_STEPS * (step_s or 0.0))
    return State.STALLED if age_s is not None and age_s > slow else State.RUNNING
