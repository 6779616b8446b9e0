"""What is measured after the window, when nothing can disturb it any more; then the script is ended.

A phase lasts some further steps of the script: operators under torch.profiler, or steps with free input. All ranks go
through the same phases for the same number of steps, so that none is left waiting.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Protocol

import torch

from hotlap.probe import boundary, marks
from hotlap.probe.accelerator import accelerator
from hotlap.probe.control import WindowDone
from hotlap.probe.feed import Feed
from hotlap.probe.marks import STEP_MARK
from hotlap.probe.portrait import profiler_is_on
from hotlap.probe.session import Session, now


class Phase(Protocol):
    """Some steps after the window. `steps` is how many it needs at most, and it may be `over` earlier; `end` is called
    even if they never come."""

    @property
    def steps(self) -> int: ...

    @property
    def over(self) -> bool: ...

    def begin(self) -> None: ...

    def step_made(self) -> None: ...

    def end(self) -> None: ...


class Epilogue:
    """Goes through the phases, one step of the script at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._phases: list[Phase] = []
        self._current: Phase | None = None
        self._left = 0
        self._begun = False
        self.last_acts: list[Callable[[], Any]] = []  # called when the window is measured, before the phases

    def add(self, phase: Phase) -> None:
        self._phases.append(phase)

    def step_made(self) -> None:
        """A step was made and the window is done; raises WindowDone after the last phase."""
        if not self._begun:
            self._begun = True
            self._close_window()
        elif self._current is not None:
            boundary.attempt(self._current.step_made)
            self._left = 0 if self._current.over else self._left - 1
        while not self._left and self._next_phase():
            pass
        if self._current is None:
            self._session.fact(0, marks.PHASES_END)
            self._finish()
            raise WindowDone(0)

    def close(self) -> None:
        """The script ends by itself: a phase under way is written with the steps that it got."""
        self._phases.clear()
        self._next_phase()
        self._finish()

    def _finish(self) -> None:
        for act in self._session.after_phases:
            boundary.attempt(act)
        self._session.after_phases.clear()

    def _next_phase(self) -> bool:
        if self._current is not None:
            boundary.attempt(self._current.end)
        self._current = self._phases.pop(0) if self._phases else None
        if self._current is None:
            return False
        self._left = self._current.steps
        boundary.attempt(self._current.begin)
        return True

    def _close_window(self) -> None:
        session = self._session
        session.note("window_done", True)
        session.note("window_end", now() - session.origin)
        session.ring.flush()
        session.note("marks", session.ring.count)  # those that follow cost the window nothing
        session.fact(0, marks.WINDOW_END)
        if session.feed is not None:
            session.feed.learns = False
        for act in self.last_acts:
            boundary.attempt(act)
        boundary.attempt(session.freeze)
        session.ring.flush()
        session.write_facts()  # whatever becomes of the job in what follows, the window is kept


# The phases that may follow the window and its experiments: operators under torch.profiler, and the CPU's peak.


OPS = "ops"
_OPS_STEPS = 3  # a trace grows by megabytes a step, and steady steps are alike
_MOST_TRACE_BYTES = 64 << 20
_LOG_LEVEL, _SILENT = (
    "KINETO_LOG_LEVEL",
    "6",
)  # one above the lines on standard error that say "profiler_start"


class OperatorPhase:
    """A few steps under torch.profiler; the trace is read outside."""

    steps = _OPS_STEPS
    over = False

    def __init__(self, session: Session, feed: Feed) -> None:
        self._session = session
        self._feed = feed
        self._profiler: Any = None
        self._seen = 0

    def begin(self) -> None:
        if profiler_is_on():
            boundary.unmeasured("operators: the script has a profiler of its own on")
            return
        self._log_level = os.environ.get(_LOG_LEVEL)
        os.environ.setdefault(_LOG_LEVEL, _SILENT)
        kinds = _activities()
        # A backend of its own may be known to the profiler and have nothing to say to it.
        self._profiler = boundary.attempt(_started, kinds) or _started(kinds[:1])
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


def _started(activities: list[Any]) -> Any:
    profiler: Any = torch.profiler.profile(activities=activities, record_shapes=True)
    profiler.start()
    return profiler


def _activities() -> list[Any]:
    """The host, and the accelerator where this torch's profiler knows it."""
    kinds = torch.profiler.ProfilerActivity
    device = boundary.attempt(accelerator)
    known = getattr(kinds, device.kind.upper(), None) if device is not None else None
    return [kinds.CPU] if known is None else [kinds.CPU, known]


_SMALLEST, _LARGEST = 256, 4096  # rows and columns
_LONG_S, _REPEATS = 0.03, 8  # a larger product shows no higher peak than one that takes so long
_COPIED_BYTES = 64 << 20
_COMPUTES_IN = ("float32", "bfloat16", "float16", "float64")


class PeakPhase:
    """The most that the CPU computes and moves in this process, with its threads: the roof of a job without a device.

    No step is made and no random number drawn for it.
    """

    steps = 0
    over = False

    def __init__(self, session: Session) -> None:
        self._session = session

    def begin(self) -> None:
        facts = self._session.facts
        devices = (facts.get("model") or {}).get("devices", ())
        if facts.get("accelerator") or any(each != "cpu" for each in devices):
            return
        self._session.facts["cpu_flops"] = {each: peak_flops(each) for each in self._precisions()}
        self._session.facts["cpu_bandwidth"] = copy_bandwidth()
        self._session.write_facts()

    def step_made(self) -> None:
        """It has no steps."""

    def end(self) -> None:
        """All is measured where it begins."""

    def _precisions(self) -> list[str]:
        facts = self._session.facts
        used = {"float32", facts.get("autocast"), *(facts.get("model") or {}).get("dtypes", ())}
        return [each for each in _COMPUTES_IN if each in used]


def peak_flops(dtype: str) -> float:
    """FLOP/s of the quickest product of two square matrices, each size several times."""
    best, size, took = 0.0, _SMALLEST, 0.0
    while took < _LONG_S and size <= _LARGEST:
        left, right, out = (
            torch.ones(size, size, dtype=getattr(torch, dtype), device="cpu") for _ in range(3)
        )
        took = min(_seconds(lambda: torch.mm(left, right, out=out)) for _ in range(_REPEATS))  # noqa: B023
        best, size = max(best, 2.0 * size**3 / took), size * 2
    return best


def copy_bandwidth() -> float:
    """Bytes a second, read and written."""
    source, target = (torch.ones(_COPIED_BYTES, dtype=torch.uint8, device="cpu") for _ in range(2))
    return 2 * _COPIED_BYTES / min(_seconds(lambda: target.copy_(source)) for _ in range(_REPEATS))


def _seconds(act: Callable[[], Any]) -> float:
    begun = now()
    act()
    return (now() - begun) / 1e9


def phases(session: Session, feed: Feed, names: list[str]) -> list[Phase]:
    """The phases that were asked for."""
    return [OperatorPhase(session, feed), PeakPhase(session)] if OPS in names else []
