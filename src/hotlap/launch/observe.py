"""Follows a running job from outside: how many steps it has made, and when it has made enough."""

from __future__ import annotations

import itertools
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

from hotlap.host.looks import LookRecord
from hotlap.host.vitals import Vitals
from hotlap.launch.holding import Clock, read_clock
from hotlap.probe import control, marks
from hotlap.probe.marks import Kind
from hotlap.stats.robust import median

_LOOK_EVERY_S = 0.5
_OFTEN, _OFTEN_S = 200, 0.2  # looks at first: a window of two seconds must be seen more than a few times
_LEAD_S = 1.5  # seconds that a word to stop needs to reach every rank
_RECENT = 20  # steps that say how long the next ones take
_DEAF_AFTER_S = 60.0  # a script that caught the word to stop and went on
_DEAF_AFTER_STEPS = 10  # where these take longer
_STEP, _BACKWARD = marks.leave(Kind.STEP), marks.leave(Kind.BACKWARD)


class Observer:
    """Called several times a second while the job runs; asks it to end after `wanted` steady steps.

    `least_s` is how long these must have taken at least; `few` are the steps that do where they took so many seconds.
    Where `asks` is set to False it only says that it is `enough`, and `ask_to_end` is left to others. Times are those
    of the job's own clock, which stands still while it is held.
    """

    def __init__(
        self,
        folder: Path,
        wanted: int | None,
        steady_from: Callable[[list[int]], int],
        progress: Callable[[str], None],
        *,
        least_s: float = 0.0,
        few: tuple[int, float] | None = None,
    ) -> None:
        self._least_s = least_s
        self._few = few
        self.asks = True
        self.since = 0  # steps that ended before do not count
        self.enough = False
        self.looks = LookRecord()
        self.steps = 0
        self._folder = folder
        self._wanted = wanted
        self._steady_from = steady_from
        self._progress = progress
        self._tails: dict[Path, _Tail] = {}
        self._vitals: Vitals | None = None
        self._looked = 0.0
        self._asked_at: float | None = None
        self._patience_s = _DEAF_AFTER_S
        self._steps_after = 0
        self._last: tuple[int, float] = (0, 0.0)  # steps of all optimizers, and seconds of one
        self.gave_up = False  # the job was asked to end, did not, and was ended

    def tick(self, pid: int) -> bool:
        """True: let the job go on. False: it does not end by itself."""
        often = len(self.looks.looks) < _OFTEN
        if time.monotonic() - self._looked >= (min(_OFTEN_S, _LOOK_EVERY_S) if often else _LOOK_EVERY_S):
            self._look(pid)
        self.gave_up = bool(self._asked_at and time.monotonic() - self._asked_at > self._patience_s)
        return not self.gave_up

    def close(self) -> None:
        if self._vitals is not None:
            self._vitals.close()

    def _look(self, pid: int) -> None:
        self._looked = time.monotonic()
        if self._vitals is None:
            self._vitals = Vitals(pid)
        elif (look := self._vitals.look()) is not None:
            self.looks.add(look)
        busiest = self._busiest()
        if busiest is not None:
            self._consider(busiest)

    def _busiest(self) -> _Tail | None:
        """The process with the most steps; ranks go in step, so any of them would do."""
        there = set(self._folder.glob("*.marks"))
        clock = read_clock(self._folder)
        for path in there:
            self._tails.setdefault(path, _Tail(path)).read(clock)
        # Files of workers that have ended are deleted in a long run.
        self._tails = {path: tail for path, tail in self._tails.items() if path in there or tail.ends()}
        return max(self._tails.values(), key=lambda tail: len(tail.ends()), default=None)

    def _consider(self, tail: _Tail) -> None:
        ends = tail.ends()
        self.steps = len(ends)
        if self._wanted is None:
            self._progress(f"{self.steps} steps")
            return
        if tail.steps_after > self._steps_after:  # it has heard, and is in the phases after the window
            self._steps_after, self._asked_at = tail.steps_after, time.monotonic()
        walls = [later - earlier for earlier, later in itertools.pairwise(ends)]
        first = max(self._steady_from(walls) if walls else 0, bisect_left(ends, self.since))
        steady, seconds = len(walls) - first, sum(walls[first:]) / 1e9
        self._progress(f"{min(steady, self._wanted)} of {self._wanted} steady steps")
        self._last = tail.optimizer_steps(), median(walls[-_RECENT:]) / 1e9 if walls else 0.0
        self.enough = (steady >= self._wanted and seconds >= self._least_s) or self._few_do(steady, seconds)
        if self.enough and self.asks and self._asked_at is None:
            self.ask_to_end()

    def _few_do(self, steps: int, seconds: float) -> bool:
        return self._few is not None and steps >= self._few[0] and seconds >= self._few[1]

    @property
    def ranks(self) -> int:
        """A rank whose first marks are not written yet takes part too."""
        training = sum(1 for tail in self._tails.values() if tail.ends())
        return max(training, *(tail.world for tail in self._tails.values()), 1)

    @property
    def optimizer_steps(self) -> int:
        """Of all optimizers together, as far as they were seen."""
        return max((tail.optimizer_steps() for tail in self._tails.values()), default=0)

    def ask_to_end(self) -> None:
        """Several ranks must hear the word before the step it names, so that all stop after the same one."""
        made, pace_s = self._last
        lead = int(_LEAD_S / max(pace_s, 1e-4)) if self.ranks > 1 else 0
        control.stop_after(self._folder, made + 1 + lead)
        self._patience_s = max(_DEAF_AFTER_S, _DEAF_AFTER_STEPS * pace_s)
        self._asked_at = time.monotonic()


class _Tail:
    """The times at which the steps of one process ended, read as its file grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._steps: dict[int, list[int]] = {}
        self._backwards: list[int] = []
        self._ended = 0
        self._in_phases = False
        self.world = 1
        self.steps_after = 0  # the measured window, until the script is asked to end

    def read(self, clock: Clock) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                content = file.read()
        except FileNotFoundError:
            return
        whole = len(content) // 8 * 8
        self._offset += whole
        values = array("q")
        values.frombytes(content[:whole])
        for value in clock.marks(values):
            code = value & 255
            if code == _STEP:
                self._ended = value >> 8
            elif code == marks.OPTIMIZER_ID:
                self._steps.setdefault(value >> 8, []).append(self._ended)
                self.steps_after += self._in_phases
            elif code == _BACKWARD:
                self._backwards.append(value >> 8)
                self.steps_after += self._in_phases
            elif code == marks.WORLD:
                self.world = value >> 8
            elif code == marks.CONTINUES and self._backwards:
                self._backwards.pop()
            elif code in (marks.WINDOW_END, marks.PHASES_END):
                self._in_phases = code == marks.WINDOW_END

    def ends(self) -> list[int]:
        """Of the optimizer that steps most often, or of backward passes where there is none."""
        return max(self._steps.values(), key=len, default=self._backwards)

    def optimizer_steps(self) -> int:
        """Of all optimizers together: what the word to stop counts."""
        return sum(len(ends) for ends in self._steps.values()) or len(self._backwards)
