"""What is measured after the window, when nothing can disturb it any more; then the script is ended.

A phase lasts some further steps of the script: operators under torch.profiler, or steps with free input. All ranks go
through the same phases for the same number of steps, so that none is left waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hotlap.probe import boundary, marks
from hotlap.probe.control import WindowDone
from hotlap.probe.session import Session, now


class Phase(Protocol):
    """Some steps after the window. `steps` is how many it needs; `end` is called even if they never come."""

    @property
    def steps(self) -> int: ...

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
            self._left -= 1
        while not self._left and self._next_phase():
            pass
        if self._current is None:
            self._session.fact(0, marks.PHASES_END)
            raise WindowDone(0)

    def close(self) -> None:
        """The script ends by itself: a phase under way is written with the steps that it got."""
        self._phases.clear()
        self._next_phase()

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
