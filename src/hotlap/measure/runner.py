"""Runs one trial: the job in fresh processes, under a plan, until it has made enough steady steps."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.blocks import Block, Schedule, read_blocks
from hotlap.facts.job import Job
from hotlap.facts.pace import by_pace
from hotlap.facts.plan import Plan
from hotlap.facts.rates import SAMPLES
from hotlap.facts.timeline import Ending, Timeline
from hotlap.facts.trial import Status, Trial, figures_of, stages_of
from hotlap.facts.witness import Witness
from hotlap.launch import runfolder
from hotlap.launch.environment import ORIGIN, WITNESS, child_environment
from hotlap.launch.looks import LookRecord
from hotlap.launch.observe import Observer
from hotlap.launch.planned import pass_plan, records_of
from hotlap.launch.process import Outcome, Signals, run_job
from hotlap.seams.plan_file import write_plan
from hotlap.stats.steady import steady_from

Collect = Callable[[Path, Outcome, Ending, int, LookRecord], tuple[Timeline, ...]]
TRIALS = "trials"
DISTURBED = 0.5  # cores in use by others: such a trial is repeated
_PATIENCE_S = (
    120.0  # without a single step: reading data and compiling may take this long, a deadlock takes longer
)
_AS_LONG = 4.0  # times what the baseline took in all
LEAST_S = 1.0  # of steady steps: many short ones scatter less than few
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

    def trial(
        self, number: int, plan: Plan, phases: Sequence[str] = ()
    ) -> tuple[Trial, tuple[Timeline, ...]]:
        """One trial and its timelines. A job that dies or hangs is a result. `phases` follow the measured window."""
        folder = self._fresh(number)
        write_plan(folder / runfolder.PLAN, plan)
        started = time.monotonic()
        watch = self._watch(folder, self.steps)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        origin, outcome = self._run(folder, passed, watch, phases=phases)
        seen = by_pace(self.collect(_probe(folder), outcome, outcome.ending, origin, watch.looks))
        trial = self._concluded(number, plan, folder, outcome, watch, seen)
        runfolder.remove_probe_files(folder)
        return replace(trial, seconds=time.monotonic() - started), seen

    def screen(self, number: int, schedule: Schedule) -> Screened:
        """Several plans in turn within one process; what each block of steps brought, and how the job ended."""
        folder = self._fresh(number)
        watch = self._watch(folder, None)
        started = time.monotonic()
        passed = pass_plan(_probe(folder), Plan(schedule.plans[0]), options=self.options, schedule=schedule)
        origin, outcome = self._run(folder, passed, watch)
        seen = self.collect(_probe(folder), outcome, outcome.ending, origin, watch.looks)
        blocks = read_blocks(_probe(folder))
        status, reason = _status(outcome, watch, bool(seen), folder)
        runfolder.remove_probe_files(folder)
        status = Status.SCREENED if status is Status.DONE else status
        trial = Trial(number, Plan(schedule.plans[0]), status, time.monotonic() - started, reason=reason)
        return Screened(trial, blocks, seen)

    def witness(self, name: str, plan: Plan, steps: int, seed: int) -> tuple[Witness | None, bool]:
        """What the first steps compute under the plan; None where the job did not get so far. And whether the user
        has interrupted it."""
        folder = self._fresh(name)
        watch = self._watch(folder, None)
        passed = pass_plan(_probe(folder), plan, options=self.options)
        _, outcome = self._run(folder, passed, watch, witness=f"{steps}:{seed}")
        found = sorted(_probe(folder).glob("*.witness.json"))
        seen: Witness | None = codec.read_json(found[0], Witness) if found else None
        runfolder.remove_probe_files(folder)
        return seen, outcome.interrupted

    def _watch(self, folder: Path, steps: int | None) -> _Watch:
        observer = Observer(_probe(folder), steps, steady_from, self.progress, least_s=LEAST_S)
        return _Watch(observer, self.limit_s)

    def _run(
        self, folder: Path, passed: Path, watch: _Watch, *, witness: str = "", phases: Sequence[str] = ()
    ) -> tuple[int, Outcome]:
        environment = child_environment(_probe(folder), phases, plan=passed, taps=not witness)
        environment[WITNESS] = witness
        environment.setdefault(_COMPILER_CACHE, str(self.folder / _COMPILED))
        with ExitStack() as files:
            streams = [
                files.enter_context((folder / f"{name}.log").open("wb")) for name in ("stdout", "stderr")
            ]
            try:
                outcome = run_job(
                    self.job, environment, watch.tick, self.signals, streams=(streams[0], streams[1])
                )
            finally:
                watch.close()
        return int(environment[ORIGIN]), outcome

    def _fresh(self, name: object) -> Path:
        folder = self.folder / TRIALS / str(name)
        if folder.exists():
            shutil.rmtree(folder)  # of a trial that a kill has cut short
        made = runfolder.create_run(self.job.name, str(folder))
        codec.write_json(made / "job.json", self.job)
        return made

    def _concluded(
        self,
        number: int,
        plan: Plan,
        folder: Path,
        outcome: Outcome,
        watch: _Watch,
        seen: Sequence[Timeline],
    ) -> Trial:
        records = records_of(_probe(folder))
        fitted = records[0].fitted if records else ()
        counts = SAMPLES if self.shortening & plan.settings.keys() else self.counts
        figures = figures_of(seen[0], counts) if seen else None
        status, reason = _status(outcome, watch, figures is not None, folder)
        return Trial(
            number=number,
            plan=plan,
            status=status,
            seconds=0.0,
            figures=figures if status is Status.DONE else None,
            reason=reason,
            stood=tuple(dict.fromkeys(each.knob for each in fitted if each.acts)),
            refused={each.knob: each.reason for each in fitted if not each.acts},
            stages=stages_of(seen[0]) if seen else {},
            numerics={each.knob: each.numerics.value for each in fitted if each.acts},
        )


@dataclass(frozen=True)
class Screened:
    """One process under several plans in turn."""

    trial: Trial
    blocks: tuple[Block, ...]
    seen: tuple[Timeline, ...]


_probe = runfolder.probe_folder


class _Watch:
    """Ends a trial that makes no step for long, or takes many times what it should."""

    def __init__(self, observer: Observer, limit_s: float | None) -> None:
        self._observer = observer
        self._limit_s = limit_s
        self._started = self._moved = time.monotonic()
        self._steps = 0
        self.hung = ""

    @property
    def looks(self) -> LookRecord:
        return self._observer.looks

    @property
    def gave_up(self) -> bool:
        return self._observer.gave_up

    def tick(self, pid: int) -> bool:
        going, now = self._observer.tick(pid), time.monotonic()
        if self._observer.steps != self._steps:
            self._steps, self._moved = self._observer.steps, now
        if now - self._moved > _PATIENCE_S:
            self.hung = f"no step for {_PATIENCE_S:.0f} s"
        elif self._limit_s and now - self._started > _AS_LONG * self._limit_s:
            self.hung = f"not done after {_AS_LONG:.0f} times what the baseline took"
        return going and not self.hung

    def close(self) -> None:
        self._observer.close()


def _status(outcome: Outcome, watch: _Watch, steady: bool, folder: Path) -> tuple[Status, str]:
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
