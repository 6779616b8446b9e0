"""The phases that may follow the window: operators under torch.profiler, and steps whose input is free."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch

from hotlap.probe.session import Session, now

OPS, CEILING = "ops", "ceiling"
_OPS_STEPS = 3  # a trace grows by megabytes a step, and steady steps are alike
_CEILING_STEPS = 24
_SETTLING = 4  # of them: the batch that is replayed is fetched, queues run empty
_MOST_TRACE_BYTES = 64 << 20


class OperatorPhase:
    """A few steps under torch.profiler; the trace is read outside."""

    steps = _OPS_STEPS

    def __init__(self, session: Session) -> None:
        self._session = session
        self._profiler: Any = None

    def begin(self) -> None:
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = torch.profiler.profile(activities=activities, record_shapes=True)
        self._profiler.start()

    def step_made(self) -> None:
        pass

    def end(self) -> None:
        self._profiler.stop()
        path = Path(self._session.folder / f"{self._session.pid}.trace.json")
        self._profiler.export_chrome_trace(str(path))
        if path.stat().st_size > _MOST_TRACE_BYTES:
            path.unlink()
            self._session.note("ops_dropped", True)
        self._session.note("ops_steps", self.steps)


class CeilingPhase:
    """Steps on one batch that is handed out again and again: what a step takes when its input costs nothing."""

    steps = _CEILING_STEPS

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ends: list[int] = []

    def begin(self) -> None:
        self._session.replays_batch = True

    def step_made(self) -> None:
        self._ends.append(now())

    def end(self) -> None:
        self._session.replays_batch = False
        ends = self._ends[_SETTLING:]
        walls = sorted(after - before for before, after in itertools.pairwise(ends))
        if walls:
            self._session.note("free_input_ns", walls)


def phases(session: Session, names: list[str]) -> list[OperatorPhase | CeilingPhase]:
    """The phases that were asked for; free input first, since the profiler slows what follows it."""
    found: list[OperatorPhase | CeilingPhase] = []
    if CEILING in names:
        found.append(CeilingPhase(session))
    if OPS in names:
        found.append(OperatorPhase(session))
    return found
