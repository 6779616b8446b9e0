"""When a trial is ended from outside, and what its end means."""

from __future__ import annotations

import time
from pathlib import Path

from hotlap.facts.trial import Status
from hotlap.launch.looks import LookRecord
from hotlap.launch.observe import Observer
from hotlap.launch.process import Outcome

_PATIENCE_S = 120.0  # without a step: reading data and compiling may take this long, a deadlock takes longer
_AS_LONG = 4.0  # times what the baseline took in all


class Watch:
    """Ends a trial that makes no step for long, or takes many times what it should."""

    def __init__(self, observer: Observer, limit_s: float | None) -> None:
        self.observer = observer
        self._limit_s = limit_s
        self._started = self._moved = time.monotonic()
        self._steps = 0
        self.held_s = 0.0  # in which it could not make a step
        self.hung = ""

    @property
    def looks(self) -> LookRecord:
        return self.observer.looks

    @property
    def gave_up(self) -> bool:
        return self.observer.gave_up

    def tick(self, pid: int) -> bool:
        going, now = self.observer.tick(pid), time.monotonic() - self.held_s
        if self.observer.steps != self._steps:
            self._steps, self._moved = self.observer.steps, now
        if now - self._moved > _PATIENCE_S:
            self.hung = f"no step for {_PATIENCE_S:.0f} s"
        elif self._limit_s and now - self._started > _AS_LONG * self._limit_s:
            self.hung = f"not done after {_AS_LONG:.0f} times what the baseline took"
        return going and not self.hung

    def close(self) -> None:
        self.observer.close()


def status_of(outcome: Outcome, watch: Watch, steady: bool, folder: Path) -> tuple[Status, str]:
    if outcome.interrupted:
        return Status.INTERRUPTED, "interrupted"
    if watch.hung:
        return Status.HUNG, watch.hung
    if outcome.exit_code and not watch.gave_up:
        return Status.DEAD, _last_words(folder / "stderr.log") or f"exit code {outcome.exit_code}"
    return (Status.DONE, "") if steady else (Status.STEPLESS, "it ended without a steady step")


def _last_words(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((line[:200] for line in reversed(lines) if line and not line.startswith("hotlap:")), "")
