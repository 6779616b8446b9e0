"""What is measured after the window, when nothing can disturb it any more; then the script is ended.

A phase lasts some further steps of the script: operators under torch.profiler, or steps with free input. All ranks go
through the same phases for the same number of steps, so that none is left waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from hotlap.probe import boundary, marks
from hotlap.probe.control import WindowDone
from hotlap.probe.session import Session


class Phase(Protocol):
    """Some steps after the window. `steps` is how many it needs; `end` is called even if they never come."""

    steps: int

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
        self.last_acts: list[Callable[[], Any]] = []  # called right before the script is ended

    def add(self, phase: Phase) -> None:
        self._phases.append(phase)

    def step_made(self) -> None:
        """A step after the window was made; raises WindowDone after the last one."""
        if not self._begun:
            self._begun = True
            self._session.note("window_done", True)
            self._session.fact(0, marks.WINDOW_END)
        elif self._current is not None:
            boundary.attempt(self._current.step_made)
            self._left -= 1
        while not self._left:
            if self._current is not None:
                boundary.attempt(self._current.end)
            if not self._phases:
                break
            self._current = self._phases.pop(0)
            self._left = self._current.steps
            boundary.attempt(self._current.begin)
        if self._left == 0:
            self._finish()

    def _finish(self) -> None:
        self._current = None
        for act in self.last_acts:
            boundary.attempt(act)
        self.last_acts.clear()
        raise WindowDone(0)
