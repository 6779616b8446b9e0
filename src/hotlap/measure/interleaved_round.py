"""One round of all variants at once: all are started, then each runs for a thin slice while the others are held.

The speed of a shared machine changes from second to second. Runs one after the other scatter by as much; slices of
some milliseconds, compared within the round, meet the same machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Status, Trial, alike
from hotlap.host.machine import inspect_host
from hotlap.launch import runfolder
from hotlap.launch.holding import Hold, Turns
from hotlap.launch.observe import Observer
from hotlap.launch.process import TICK_S, Signals
from hotlap.measure.runner import Attempt

MOST_VARIANTS = 4  # at once: each needs its memory, and waits for all others
SLICES_S = 4.0  # of slices for each variant in a round, which takes twice as long to start
SLICE_S = 0.02  # thinner, and waking up would count; thicker, and the machine changes before the others run
FIRST_STEPS = 3  # then a job has started, and waits for the others
ALONE_S, LOOK_S = 0.8, 0.01  # how long a job is looked at, and how often, to see whether it can be held
BUSY = 0.95  # of the looks must find it computing: what waits for a disk or a timer goes on while it is held
LIKE = 1.5  # times as fast: more is told without slices as well, and without what waking up costs each
_ROOM = 1.5  # times its memory must be free for each of the others

Start = Callable[[], Attempt]


def possible(count: int) -> bool:
    """Whether so many jobs may be held in turn here. What a GPU was given goes on while its process is held."""
    return sys.platform == "linux" and 1 < count <= MOST_VARIANTS and not inspect_host().gpus


@dataclass(frozen=True)
class Entrant:
    """A trial under way, and what holds its job."""

    attempt: Attempt
    hold: Hold

    @property
    def pid(self) -> int:
        return self.attempt.started.running.child.pid

    @property
    def going(self) -> bool:
        return self.attempt.started.running.going

    @property
    def observer(self) -> Observer:
        return self.attempt.started.watch.observer

    def tick(self, received: tuple[int, bool] | None = None) -> None:
        self.attempt.started.watch.held_s = self.hold.held_s
        self.attempt.started.running.tick(received)


class Heat:
    """`obstacle` says why the variants cannot be run together, if so: what the heat brought is not to be used then."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self._turns = Turns()
        self._attempts: list[Attempt] = []
        self._entrants: list[Entrant] = []
        self._interrupted = False
        self.obstacle = ""

    def run(self, starts: Sequence[Start], *, careful: bool) -> list[Trial]:
        """One trial for each start. The first time it is `careful`: it looks whether they may run together."""
        try:
            with self._turns:
                if careful:
                    self._start_carefully(starts)
                else:
                    self._start(starts)
                self._take_slices()
            self._wait_for_the_end()
        except BaseException:
            for each in self._attempts:
                each.started.abandon()
            raise
        trials = self._concluded()
        if careful:
            self.obstacle = self.obstacle or self._unfit(trials)
        if self._interrupted:
            self.obstacle = ""  # there is nothing more to be run
        return trials

    # -- the start: each runs freely up to its first steps -----------------------------------------------------------

    def _start(self, starts: Sequence[Start]) -> None:
        waiting = [self._enter(start) for start in starts]
        while waiting := [each for each in waiting if not self._has_started(each)]:
            if not self._wait(TICK_S):
                return
            for each in waiting:
                each.tick()

    def _start_carefully(self, starts: Sequence[Start]) -> None:
        """The first one alone, and no other beside one whose first steps say that it must run alone."""
        self._start(starts[:1])
        first = self._entrants[0]
        self.obstacle = "" if self._interrupted else _several(first) or _crowd(first, len(starts) - 1)
        if not self._over:
            self._start(starts[1:])
        for each in self._entrants:
            if not self._over:
                self.obstacle = _several(each) or self._idle(each)

    def _enter(self, start: Start) -> Entrant:
        attempt = start()
        self._attempts.append(attempt)
        run = attempt.started
        run.watch.observer.asks = False
        probe = runfolder.probe_folder(attempt.folder)
        self._entrants.append(Entrant(attempt, self._turns.enter(run.running.child.pid, probe, run.origin)))
        return self._entrants[-1]

    def _has_started(self, each: Entrant) -> bool:
        """Or has ended. Who has started is held until the others have."""
        if each.going and each.observer.steps < FIRST_STEPS:
            return False
        if each.going:
            each.hold.hold()
        else:
            self._turns.leave(each.pid)
        return True

    def _idle(self, each: Entrant) -> str:
        """Whether the job waits for what goes on while it is held: it runs alone and is looked at."""
        looks = []
        each.hold.release()
        until = time.monotonic() + ALONE_S
        while each.going and time.monotonic() < until and self._wait(LOOK_S):
            looks.append(each.hold.busy_threads() > 0)
        if not each.going:
            return ""
        each.hold.hold()
        busy = fmean(looks) if looks else 1.0
        return "" if busy >= BUSY else f"{each.attempt.bench.job.shown} waits for {1 - busy:.0%} of its time"

    # -- the slices --------------------------------------------------------------------------------------------------

    def _take_slices(self) -> None:
        for each in self._entrants:
            each.observer.since = each.hold.moment
        while not self._over:
            # Never back and forth: who stands at the turning point would be woken half as often.
            for each in self._entrants:
                self._slice(each)
        for each in self._entrants:
            if each.going and not self._interrupted:
                each.observer.ask_to_end()

    def _slice(self, each: Entrant) -> None:
        """Who has enough stays held: a variant of steps ten times as long must not cost the others' time as well."""
        if each.going and not each.observer.enough and not self._interrupted:
            self._turns.give(each.pid)
            self._wait(SLICE_S)
            if not self._interrupted:
                self._turns.rest()
            each.tick()
        if not each.going:
            self._turns.leave(each.pid)

    @property
    def _over(self) -> bool:
        enough = all(each.observer.enough for each in self._entrants if each.going)
        return enough or self._interrupted or bool(self.obstacle)

    # -- the end -----------------------------------------------------------------------------------------------------

    def _wait(self, seconds: float) -> bool:
        """False if the user wants an end: then all go on, and each is told."""
        received = self._signals.next(seconds)
        if received is not None:
            self._interrupted = True
            self._turns.all_go_on()
            for each in self._entrants:
                each.tick(received)
        return not self._interrupted

    def _wait_for_the_end(self) -> None:
        while any(each.going for each in self._entrants):
            received = self._signals.next(TICK_S)
            self._interrupted |= received is not None
            for each in self._entrants:
                if each.going:
                    each.tick(received)

    def _concluded(self) -> list[Trial]:
        brought = [each.attempt.concluded(each.attempt.started.outcome()) for each in self._entrants]
        timelines = [seen[0] for _, seen in brought if seen]
        if not self.obstacle and any(_uses_a_device(each) for each in timelines):
            self.obstacle = "a device goes on with its work while a process is held"
        foreign = _foreign_cores(timelines)
        return [
            replace(trial, figures=replace(trial.figures, foreign_cores=foreign)) if trial.figures else trial
            for trial, _ in brought
        ]

    def _unfit(self, trials: Sequence[Trial]) -> str:
        """Why what a first heat brought is no reason for another."""
        if any(each.status is not Status.DONE for each in trials):
            return "one of them did not last beside the others"
        if not all(each.observer.enough for each in self._entrants):
            return "one of them has too few steps for slices"
        return "" if _alike([each.figures for each in trials if each.figures]) else "they are not alike"


def _several(each: Entrant) -> str:
    """Ranks wait for each other, held or not."""
    return f"{each.attempt.bench.job.shown} trains in several processes" if each.observer.ranks > 1 else ""


def _crowd(each: Entrant, more: int) -> str:
    """Whether there is no room for so many more of its kind."""
    looks = each.observer.looks.looks
    needed = _ROOM * more * max((look.tree_rss for look in looks), default=0)
    return "there is no memory for all at once" if needed > inspect_host().ram_free_bytes else ""


def _alike(figures: Sequence[Figures]) -> bool:
    """What nothing was counted in that all of them share cannot be told to be unlike."""
    (told,) = alike(figures)
    rates = [each.throughput for each in told]
    return len({each.counts for each in told}) > 1 or max(rates) <= LIKE * min(rates)


def _uses_a_device(timeline: Timeline) -> bool:
    return timeline.model is not None and any(
        not device.startswith("cpu") for device in timeline.model.devices
    )


def _foreign_cores(timelines: Sequence[Timeline]) -> float | None:
    """In use by others than these jobs, each of which saw the others of them as foreign."""
    gauges = [
        [
            gauge
            for gauge in each.gauges
            if each.steady_steps and gauge.t >= each.steps.start[each.steady_from]
        ]
        for each in timelines
    ]
    if not timelines or not all(gauges):
        return None
    own = [fmean(gauge.cpu + gauge.workers_cpu for gauge in each) for each in gauges]
    foreign = [fmean(gauge.foreign_cpu for gauge in each) for each in gauges]
    return max(0.0, fmean(own) + fmean(foreign) - sum(own))
