"""The phases that may follow the window: operators under torch.profiler, and steps whose input is free."""

from __future__ import annotations

import os
from typing import Any

import torch

from hotlap.probe import boundary
from hotlap.probe.feed import Feed
from hotlap.probe.marks import STEP_MARK
from hotlap.probe.rehearsal import RehearsalPhase, numbers_of_workers
from hotlap.probe.session import Session, now

OPS, CEILING, FREE = "ops", "ceiling", "free"
_BRIEF = 3  # times shorter: free input by itself, where a search waits for it
_OPS_STEPS = 3  # a trace grows by megabytes a step, and steady steps are alike
_MOST_TRACE_BYTES = 64 << 20
_LEAST_CEILING_STEPS = 28  # of long steps; of short ones as many as the job's observer says
_SETTLING = 4  # of the free ones: caches and clocks come to rest
_LOG_LEVEL, _SILENT = (
    "KINETO_LOG_LEVEL",
    "6",
)  # one above the lines on standard error that say "profiler_start"


class OperatorPhase:
    """A few steps under torch.profiler; the trace is read outside."""

    steps = _OPS_STEPS

    def __init__(self, session: Session, feed: Feed) -> None:
        self._session = session
        self._feed = feed
        self._profiler: Any = None
        self._seen = 0

    def begin(self) -> None:
        if torch._C._autograd._profiler_enabled():
            boundary.unmeasured("operators: the script has a profiler of its own on")
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        profiler = torch.profiler.profile(activities=activities, record_shapes=True)
        self._log_level = os.environ.get(_LOG_LEVEL)
        os.environ.setdefault(_LOG_LEVEL, _SILENT)
        profiler.start()
        self._profiler = profiler
        # A validation may come between two steps, and a trace of it would have no bounds.
        self._feed.on_other_batch = self._stop

    def step_made(self) -> None:
        if self._profiler is not None:
            with torch.profiler.record_function(STEP_MARK):
                self._seen += 1

    def end(self) -> None:
        self._stop()

    def _stop(self) -> None:
        self._feed.on_other_batch = None
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return
        profiler.stop()
        if self._log_level is None:
            os.environ.pop(_LOG_LEVEL, None)
        if self._seen:
            self._write(profiler)
        else:
            boundary.unmeasured("operators: no whole step was made under torch.profiler")

    def _write(self, profiler: Any) -> None:
        path = self._session.folder / f"{self._session.pid}.trace.json"
        profiler.export_chrome_trace(str(path))
        size = path.stat().st_size
        if size > _MOST_TRACE_BYTES:
            path.unlink()
            boundary.unmeasured(f"operators: the trace of {self._seen} steps has {size >> 20} MiB")


class CeilingPhase:
    """Steps on one batch that is handed out again and again: what a step takes when its input costs nothing."""

    def __init__(self, session: Session, feed: Feed, *, brief: bool = False) -> None:
        self._session = session
        self._feed = feed
        self._shorter = _BRIEF if brief else 1
        self._ended_at = 0
        self._walls: list[int] = []
        self._settled = False

    @property
    def steps(self) -> int:
        return max(_LEAST_CEILING_STEPS, self._session.control.phase // self._shorter)

    def begin(self) -> None:
        self._feed.replays = True

    def step_made(self) -> None:
        if self._feed.step_was_free and self._settled:
            self._walls.append(now() - self._ended_at)
        if not self._settled:
            self._settled = self._feed.wait_for_workers()
        if len(self._walls) == _SETTLING:
            _wait_for_device()
        self._ended_at = now()

    def end(self) -> None:
        self._feed.forget()
        walls = self._walls[_SETTLING:]
        if not walls:
            boundary.unmeasured(f"free input: {len(self._walls)} steps on replayed batches are too few")
            return
        if _on_device():
            # The host runs ahead of the device, so that only all steps together say what one takes.
            walls[-1] += _wait_for_device()
            walls = [sum(walls) // len(walls)] * len(walls)
        self._session.note("free_input_ns", sorted(walls))


def _on_device() -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _wait_for_device() -> int:
    """Nanoseconds until the device has done what it was asked to do."""
    started = now()
    if _on_device():
        torch.cuda.synchronize()
    return now() - started


AnyPhase = OperatorPhase | CeilingPhase | RehearsalPhase


def phases(session: Session, feed: Feed, names: list[str]) -> list[AnyPhase]:
    """The phases that were asked for; free input first, since the profiler slows what follows it."""
    found: list[AnyPhase] = []
    if CEILING in names:
        found.append(CeilingPhase(session, feed))
        found += [RehearsalPhase(session, feed, workers) for workers in numbers_of_workers()]
    elif FREE in names:
        found.append(CeilingPhase(session, feed, brief=True))
    if OPS in names:
        found.append(OperatorPhase(session, feed))
    return found
