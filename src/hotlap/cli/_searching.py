"""How `hotlap tune` tells of its progress: a line for each trial and each verdict, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from hotlap.units import duration, rate

if TYPE_CHECKING:
    from hotlap.facts.trial import Figures, Trial
    from hotlap.facts.verdict import Verdict
    from hotlap.pipeline.asked import Budget, Said

WIDTH = 100
_SETTINGS = 30


class Teller:
    """Holds every trial against the first one, which is the script as it is."""

    def __init__(self, budget: Budget, say: Callable[[str], None]) -> None:
        self._budget = budget
        self._say = say
        self._started = time.monotonic()
        self._made = 0
        self._first: Figures | None = None

    def said(self) -> Said:
        from hotlap.pipeline.asked import Said

        return Said(self.trial, self.verdict, lambda note: self._say(cut(f"  {note}")))

    def trial(self, done: Trial) -> None:
        self._first = self._first or done.figures
        self._made += 1
        self._say(trial_line(done, self._times(done.figures), self._left()))

    def verdict(self, found: Verdict) -> None:
        self._say(verdict_line(found))

    def _times(self, reached: Figures | None) -> float | None:
        """How often as fast as the first, both in one count."""
        from hotlap.facts.counting import alike

        if self._first is None or reached is None:
            return None
        (first,), (now,) = alike([self._first], [reached])
        return now.throughput / first.throughput

    def _left(self) -> str:
        if self._budget.trials is not None:
            return f"{max(0, self._budget.trials - self._made)} left"
        if self._budget.seconds is None:
            return ""
        return f"{max(0.0, self._budget.seconds - (time.monotonic() - self._started)):.0f} s left"


def trial_line(trial: Trial, times: float | None, left: str) -> str:
    """Number, setting, ms a step, throughput, how often as fast as the first, what it took, what is left."""
    figures = trial.figures
    result = (
        f"{duration(figures.step_ms / 1e3):>8}/step {rate(figures.throughput):>8} {figures.counts}/s"
        if figures
        else trial.status.value
    )
    gain = f"{times:.2f}x" if times is not None else ""
    named = _named(trial.plan.settings)
    return cut(
        f"trial {trial.number:3}  {named:{_SETTINGS}} {result:<33} {gain:>6} {trial.seconds:3.0f} s  {left}"
    )


def verdict_line(found: Verdict) -> str:
    """What becomes of a setting, with its gain and why."""
    gain = f", gain {found.gain.value:+.0%}" if found.gain else ""
    reason = f" ({found.reason})" if found.reason else ""
    return cut(f"  {found.ruling.value}: {found.knob}={found.setting}{gain}{reason}")


def _named(settings: Mapping[str, Any]) -> str:
    named = " ".join(f"{key}={value}" for key, value in settings.items()) or "the script as it is"
    return named if len(named) <= _SETTINGS else f"{named[: _SETTINGS - 3]}..."


def cut(line: str) -> str:
    """A progress line that does not wrap; the outcome says all of it."""
    line = line.rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def say_on_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def say_nothing(_: str) -> None:
    """Standard output holds JSON, and whoever reads it wants nothing else."""
