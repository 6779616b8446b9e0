"""Runs one trial: the job in fresh processes, under a plan, until it has made enough steady steps."""

from __future__ import annotations

import shutil
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from hotlap.facts import codec, private
from hotlap.facts.experiment import Experiments
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.summary import by_pace
from hotlap.facts.timeline import Ending, Timeline
from hotlap.facts.trial import Status, Trial, figures_of, stages_of, without_tokens
from hotlap.facts.verdict import Witness
from hotlap.host.looks import LookRecord
from hotlap.launch import runfolder
from hotlap.launch.environment import ORIGIN, REFERENCE, WITNESS, child_environment
from hotlap.launch.observe import Observer
from hotlap.launch.planned import pass_plan, records_of
from hotlap.launch.process import TICK_S, Outcome, RunningJob, Signals, cold
from hotlap.launch.warm import WarmChild, Warmth
from hotlap.plan.file import write_plan
from hotlap.plan.record import Record
from hotlap.sameness.breach import read as read_breaches
from hotlap.stats.robust import steady_from

# When a trial is ended from outside, and what its end means.


_PATIENCE_S = 120.0  # without a step: reading data and compiling may take this long, a deadlock takes longer
AS_LONG = 4.0  # times what the baseline took in all


class Leader(Protocol):
    """Leads the experiments of a trial; False from `tick` where the job has to be ended."""

    @property
    def begun(self) -> bool: ...

    def tick(self) -> bool: ...

    def results(self) -> Experiments | None: ...


class Watchdog:
    """Ends a trial that makes no step for long, or takes many times what it should."""

    def __init__(self, observer: Observer, limit_s: float | None) -> None:
        self.observer = observer
        self._limit_s = limit_s
        self._started = self._moved = time.monotonic()
        self._steps = 0
        self.held_s = 0.0  # in which it could not make a step
        self.hung = ""
        self.leader: Leader | None = None

    @property
    def looks(self) -> LookRecord:
        return self.observer.looks

    @property
    def gave_up(self) -> bool:
        return self.observer.gave_up

    def tick(self, pid: int) -> bool:
        going, now = self.observer.tick(pid), time.monotonic() - self.held_s
        if self.leader is not None:
            going = self.leader.tick() and going
            if self.leader.begun:  # the window is measured, and whoever leads what follows ends it in time
                return going
        if self.observer.steps != self._steps:
            self._steps, self._moved = self.observer.steps, now
        if now - self._moved > _PATIENCE_S:
            self.hung = f"no step for {_PATIENCE_S:.0f} s"
        elif self._limit_s and now - self._started > AS_LONG * self._limit_s:
            self.hung = f"not done after {now - self._started:.0f} s"
        return going and not self.hung

    def close(self) -> None:
        self.observer.close()


def status_of(outcome: Outcome, watch: Watchdog, steady: bool, folder: Path) -> tuple[Status, str]:
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


Collect = Callable[[Path, Outcome, Ending, int, LookRecord], tuple[Timeline, ...]]
Lead = Callable[[Path, Observer, int], Leader]
"""From a trial's folder, its observer and the origin of its clock to who leads the experiments after its window."""
TRIALS, EXPERIMENTS = "trials", "experiments.json"
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
        self, number: int, plan: Plan, phases: Sequence[str] = (), lead: Lead | None = None
    ) -> tuple[Trial, tuple[Timeline, ...]]:
        """One trial and its timelines. A job that dies or hangs is a result. The measured window is followed by the
        experiments that `lead` begins, and by `phases`."""
        attempt = self.begin(number, plan, phases, lead=lead)
        trial, seen = attempt.concluded(attempt.started.wait(self.signals))
        if self.warmth is None or not attempt.started.warm:
            return trial, seen
        self.warmth.proved |= trial.status is Status.DONE
        if trial.status not in (_FAILED if self.warmth.proved else (*_FAILED, Status.HUNG)):
            return trial, seen
        words = (attempt.folder / _ERRORS).read_bytes()
        again, seen = replace(self, warmth=None).trial(number, plan, phases, lead)
        private.write(attempt.folder / _WARM_ERRORS, words)
        self._learn(again.status is Status.DONE)
        return again, seen

    def experiments(self, number: int) -> Experiments | None:
        """What was tried after the window of a trial, also of an earlier search; None where nothing was."""
        path = self.folder / TRIALS / str(number) / EXPERIMENTS
        found: Experiments | None = codec.read_json(path, Experiments) if path.is_file() else None
        return found

    def ask(self, plan: Plan) -> tuple[tuple[Record, ...], bool]:
        """Where the settings of a plan could act, by a run of two steps in which none of them stays applied; and
        whether the user has interrupted it."""
        folder = self._fresh("asking")
        passed = pass_plan(_probe(folder), plan, asking=True, options=self.options)
        outcome = self._start(folder, passed, self._watch(folder, None), taps=False).wait(self.signals)
        records = records_of(_probe(folder))
        runfolder.remove_probe_files(folder)
        return records, outcome.interrupted

    def begin(
        self,
        number: int,
        plan: Plan,
        phases: Sequence[str] = (),
        *,
        least_s: float = LEAST_S,
        lead: Lead | None = None,
    ) -> Attempt:
        """A trial under way: its job was started, and whoever began it looks after it. `least_s` of steady steps."""
        folder = self._fresh(number)
        write_plan(folder / runfolder.PLAN, plan)
        watch = self._watch(folder, self.steps, least_s)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        return Attempt(
            self, number, plan, folder, self._start(folder, passed, watch, phases=phases, lead=lead)
        )

    def witness(
        self,
        name: str,
        plan: Plan,
        steps: int,
        seed: int,
        samples: int = 0,
        epoch: int = 0,
        reference: str = "",
    ) -> tuple[Witness | None, bool]:
        """What the first steps compute under the plan, or those that see so many samples; None where the job did not
        get so far. And whether the user has interrupted it. Epochs are cut short after `epoch` steps, where it is
        not 0. `reference` is the file of the batches that it is asked about in the end, or, with PUT before it, the
        one where it puts them aside."""
        folder = self._fresh(name)
        watch = self._watch(folder, None)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        told = {WITNESS: f"{steps}:{seed}:{samples}:{epoch}", REFERENCE: reference}
        run = self._start(folder, passed, watch, witness=told, taps=False)
        outcome = run.wait(self.signals)
        found = sorted(_probe(folder).glob("*.witness.json"))
        seen: Witness | None = codec.read_json(found[0], Witness) if found else None
        if seen is not None:
            seen = replace(seen, breaches=tuple(each.what for each in read_breaches(_probe(folder))))
        runfolder.remove_probe_files(folder)
        if seen is None and not outcome.interrupted and run.warm:
            again = replace(self, warmth=None)
            seen, interrupted = again.witness(name, plan, steps, seed, samples, epoch, reference)
            self._learn(seen is not None)
            return seen, interrupted
        return seen, outcome.interrupted

    def _learn(self, trained: bool) -> None:
        """A job that trains when it is started as ever, and not when it is forked, is not forked any more."""
        if self.warmth is not None and trained:
            self.warmth.cool()

    def _watch(self, folder: Path, steps: int | None, least_s: float = LEAST_S) -> Watchdog:
        observer = Observer(_probe(folder), steps, steady_from, self.progress, least_s=least_s, few=FEW)
        return Watchdog(observer, self.limit_s)

    def _start(
        self,
        folder: Path,
        passed: Path,
        watch: Watchdog,
        *,
        witness: Mapping[str, str] | None = None,
        phases: Sequence[str] = (),
        taps: bool = True,
        lead: Lead | None = None,
    ) -> Started:
        if self.warmth is not None:
            self.warmth.prepare(self.signals)
        environment = child_environment(
            _probe(folder), phases, plan=passed, taps=taps, experiments=lead is not None
        )
        if lead is not None:
            watch.leader = lead(_probe(folder), watch.observer, int(environment[ORIGIN]))
        environment |= witness or {WITNESS: "", REFERENCE: ""}
        environment.setdefault(_COMPILER_CACHE, str(self.folder / _COMPILED))
        with _log(folder / "stdout.log") as out, _log(folder / _ERRORS) as err:
            start = self.warmth.start if self.warmth is not None else cold
            running = RunningJob(
                self.job, environment, watch.tick, self.signals, (out, err), start, ends_with_us=True
            )
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

    running: RunningJob
    origin: int
    watch: Watchdog

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
        tried = watch.leader.results() if watch.leader is not None else None
        trial = self._trial(outcome, seen, tried)
        if tried is not None:
            codec.write_json(self.folder / EXPERIMENTS, tried)
        runfolder.remove_probe_files(self.folder)
        return trial, seen

    def _trial(self, outcome: Outcome, seen: Sequence[Timeline], tried: Experiments | None) -> Trial:
        """Whatever became of the job in its experiments, its window was measured before them."""
        bench, plan = self.bench, self.plan
        records = records_of(_probe(self.folder))
        broken = {each.knob: each.what for each in read_breaches(_probe(self.folder))}
        fitted = [each for each in records[0].fitted if each.knob not in broken] if records else ()
        figures = figures_of(seen[0], bench.counts) if seen else None
        if figures is not None and bench.shortening & plan.settings.keys():
            figures = without_tokens(figures)
        status, reason = status_of(outcome, self.started.watch, figures is not None, self.folder)
        if tried is not None and figures is not None and status is not Status.INTERRUPTED:
            status, reason = Status.DONE, ""
        return Trial(
            number=self.number,
            plan=plan,
            status=status,
            seconds=max(0.0, outcome.seconds - (tried.seconds if tried else 0.0)),
            figures=figures if status is Status.DONE else None,
            reason=reason,
            stood=tuple(dict.fromkeys(each.knob for each in fitted if each.acts)),
            refused={each.knob: each.reason for each in fitted if not each.acts} | broken,
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


_probe = runfolder.probe_folder


def _log(path: Path) -> BinaryIO:
    return open(path, "wb", opener=private.opener)
