"""Runs one trial: the job in fresh processes, under a plan, until it has made enough steady steps."""

from __future__ import annotations

import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.blocks import Block, Schedule, read_blocks
from hotlap.facts.counting import without_tokens
from hotlap.facts.job import Job
from hotlap.facts.pace import by_pace
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Ending, Timeline
from hotlap.facts.trial import Status, Trial, figures_of, stages_of
from hotlap.facts.witness import Witness
from hotlap.launch import runfolder
from hotlap.launch.environment import ORIGIN, WITNESS, child_environment
from hotlap.launch.looks import LookRecord
from hotlap.launch.observe import Observer
from hotlap.launch.planned import pass_plan, records_of
from hotlap.launch.process import TICK_S, Outcome, Running, Signals, cold
from hotlap.launch.warm import WarmChild, Warmth
from hotlap.measure.patience import Watch, status_of
from hotlap.seams.plan_file import write_plan
from hotlap.stats.steady import steady_from

Collect = Callable[[Path, Outcome, Ending, int, LookRecord], tuple[Timeline, ...]]
TRIALS = "trials"
DISTURBED = 0.5  # cores in use by others: such a trial is repeated
LEAST_S = 1.0  # of steady steps: many short ones scatter less than few
FEW = (20, 20.0)  # steps of a second or more, and their seconds: all that were asked for would take minutes
_FAILED = (Status.DEAD, Status.STEPLESS)
_ERRORS, _WARM_ERRORS = "stderr.log", "stderr.warm.log"
_COMPILED = "compiled"  # where the trials of one search share what the compiler has built
_COMPILER_CACHE = "TORCHINDUCTOR_CACHE_DIR"


def disturbed(trial: Trial) -> bool:
    """Whether others kept the machine busy meanwhile."""
    foreign = trial.figures.foreign_cores if trial.figures else None
    return foreign is not None and foreign >= DISTURBED


@dataclass(frozen=True)
class Bench:
    """Where and how trials run. `collect` makes timelines of what the probe has written.

    `options` are words to the seams beside the plan, as `hotlap run` has them.
    """

    job: Job
    folder: Path
    collect: Collect
    signals: Signals
    steps: int
    progress: Callable[[str], None] = lambda _: None
    limit_s: float | None = None  # of one trial
    options: Mapping[str, Any] = field(default_factory=dict)
    counts: str = ""  # what the throughput of every trial is in; empty: what is steadiest in it
    shortening: frozenset[str] = frozenset()  # knobs beside which tokens are not counted
    warmth: Warmth | None = None  # starts runs with their libraries imported

    def trial(
        self, number: int, plan: Plan, phases: Sequence[str] = ()
    ) -> tuple[Trial, tuple[Timeline, ...]]:
        """One trial and its timelines. A job that dies or hangs is a result. `phases` follow the measured window."""
        attempt = self.begin(number, plan, phases)
        trial, seen = attempt.concluded(attempt.started.wait(self.signals))
        if self.warmth is None or not attempt.started.warm:
            return trial, seen
        self.warmth.proved |= trial.status is Status.DONE
        if trial.status not in (_FAILED if self.warmth.proved else (*_FAILED, Status.HUNG)):
            return trial, seen
        words = (attempt.folder / _ERRORS).read_bytes()
        again, seen = replace(self, warmth=None).trial(number, plan, phases)
        (attempt.folder / _WARM_ERRORS).write_bytes(words)
        self._learn(again.status is Status.DONE)
        return again, seen

    def begin(
        self, number: int, plan: Plan, phases: Sequence[str] = (), *, least_s: float = LEAST_S
    ) -> Attempt:
        """A trial under way: its job was started, and whoever began it looks after it. `least_s` of steady steps."""
        folder = self._fresh(number)
        write_plan(folder / runfolder.PLAN, plan)
        watch = self._watch(folder, self.steps, least_s)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        return Attempt(self, number, plan, folder, self._start(folder, passed, watch, phases=phases))

    def screen(self, number: int, schedule: Schedule) -> Screened:
        """Several plans in turn within one process; what each block of steps brought, and how the job ended."""
        folder = self._fresh(number)
        watch = self._watch(folder, None)
        started = time.monotonic()
        passed = pass_plan(_probe(folder), Plan(schedule.plans[0]), options=self.options, schedule=schedule)
        run = self._start(folder, passed, watch)
        outcome = run.wait(self.signals)
        seen = self.collect(_probe(folder), outcome, outcome.ending, run.origin, watch.looks)
        blocks = read_blocks(_probe(folder))
        status, reason = status_of(outcome, watch, bool(seen), folder)
        runfolder.remove_probe_files(folder)
        status = Status.SCREENED if status is Status.DONE else status
        trial = Trial(number, Plan(schedule.plans[0]), status, time.monotonic() - started, reason=reason)
        return Screened(trial, blocks, seen)

    def witness(
        self, name: str, plan: Plan, steps: int, seed: int, samples: int = 0
    ) -> tuple[Witness | None, bool]:
        """What the first steps compute under the plan, or those that see so many samples; None where the job did not
        get so far. And whether the user has interrupted it."""
        folder = self._fresh(name)
        watch = self._watch(folder, None)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        run = self._start(folder, passed, watch, witness=f"{steps}:{seed}:{samples}")
        outcome = run.wait(self.signals)
        found = sorted(_probe(folder).glob("*.witness.json"))
        seen: Witness | None = codec.read_json(found[0], Witness) if found else None
        runfolder.remove_probe_files(folder)
        if seen is None and not outcome.interrupted and run.warm:
            seen, interrupted = replace(self, warmth=None).witness(name, plan, steps, seed, samples)
            self._learn(seen is not None)
            return seen, interrupted
        return seen, outcome.interrupted

    def _learn(self, trained: bool) -> None:
        """A job that trains when it is started as ever, and not when it is forked, is not forked any more."""
        if self.warmth is not None and trained:
            self.warmth.cool()

    def _watch(self, folder: Path, steps: int | None, least_s: float = LEAST_S) -> Watch:
        observer = Observer(_probe(folder), steps, steady_from, self.progress, least_s=least_s, few=FEW)
        return Watch(observer, self.limit_s)

    def _start(
        self, folder: Path, passed: Path, watch: Watch, *, witness: str = "", phases: Sequence[str] = ()
    ) -> Started:
        if self.warmth is not None:
            self.warmth.prepare(self.signals)
        environment = child_environment(_probe(folder), phases, plan=passed, taps=not witness)
        environment[WITNESS] = witness
        environment.setdefault(_COMPILER_CACHE, str(self.folder / _COMPILED))
        with (folder / "stdout.log").open("wb") as out, (folder / _ERRORS).open("wb") as err:
            start = self.warmth.start if self.warmth is not None else cold
            running = Running(self.job, environment, watch.tick, self.signals, (out, err), start)
        return Started(running, int(environment[ORIGIN]), watch)

    def _fresh(self, name: object) -> Path:
        folder = self.folder / TRIALS / str(name)
        if folder.exists():
            shutil.rmtree(folder)  # of a trial that a kill has cut short
        made = runfolder.create_run(self.job.name, str(folder))
        codec.write_json(made / "job.json", self.job)
        return made


@dataclass(frozen=True)
class Started:
    """A job that runs for a trial, and who watches it."""

    running: Running
    origin: int
    watch: Watch

    @property
    def warm(self) -> bool:
        return isinstance(self.running.child, WarmChild)

    def wait(self, signals: Signals) -> Outcome:
        """Until it has ended."""
        while self.running.going:
            self.running.tick(signals.next(TICK_S))
        return self.outcome()

    def abandon(self) -> None:
        """Nobody will ask for its outcome."""
        self.running.end()
        self.outcome()

    def outcome(self) -> Outcome:
        """How it has ended; to be asked once."""
        self.watch.close()
        return self.running.outcome()


@dataclass(frozen=True)
class Attempt:
    """A trial under way."""

    bench: Bench
    number: int
    plan: Plan
    folder: Path
    started: Started

    def concluded(self, outcome: Outcome) -> tuple[Trial, tuple[Timeline, ...]]:
        """Of a job that has ended."""
        watch, probe = self.started.watch, _probe(self.folder)
        collected = self.bench.collect(probe, outcome, outcome.ending, self.started.origin, watch.looks)
        seen = tuple(steady_since(each, watch.observer.since) for each in by_pace(collected))
        trial = self._trial(outcome, seen)
        runfolder.remove_probe_files(self.folder)
        return trial, seen

    def _trial(self, outcome: Outcome, seen: Sequence[Timeline]) -> Trial:
        bench, plan = self.bench, self.plan
        records = records_of(_probe(self.folder))
        fitted = records[0].fitted if records else ()
        figures = figures_of(seen[0], bench.counts) if seen else None
        if figures is not None and bench.shortening & plan.settings.keys():
            figures = without_tokens(figures)
        status, reason = status_of(outcome, self.started.watch, figures is not None, self.folder)
        return Trial(
            number=self.number,
            plan=plan,
            status=status,
            seconds=outcome.seconds,
            figures=figures if status is Status.DONE else None,
            reason=reason,
            stood=tuple(dict.fromkeys(each.knob for each in fitted if each.acts)),
            refused={each.knob: each.reason for each in fitted if not each.acts},
            stages=stages_of(seen[0]) if seen else {},
            numerics={each.knob: each.numerics.value for each in fitted if each.acts},
        )


def steady_since(timeline: Timeline, moment: int) -> Timeline:
    """Steady from this moment on, the same for all that are compared; who compiles may be steady later.

    A guess for each of them where its warm-up ends would leave slow steps out here and keep them there.
    """
    first = bisect_left(timeline.steps.start, moment)
    if not moment or first >= len(timeline.steps):
        return timeline
    guessed = timeline.steady_from if timeline.warmup.compiles else 0
    return replace(timeline, steady_from=max(first, guessed))


@dataclass(frozen=True)
class Screened:
    """One process under several plans in turn."""

    trial: Trial
    blocks: tuple[Block, ...]
    seen: tuple[Timeline, ...]


_probe = runfolder.probe_folder
