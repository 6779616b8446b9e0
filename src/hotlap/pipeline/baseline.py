"""The wiring of `hotlap baseline`: runs of a job with the machine's own pace beside each, kept in a file or held
against it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median_low

from hotlap.errors import FactError, JobError, UsageError
from hotlap.facts import codec
from hotlap.facts.baseline import (
    Baseline,
    Baselines,
    Checked,
    MachineIdentity,
    in_one_count,
    machine_of,
    named,
)
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Trial, alike
from hotlap.host.machine import inspect_host, pace
from hotlap.judge.gain import CONFIDENCE
from hotlap.judge.gain import check as judged
from hotlap.launch import runfolder
from hotlap.launch.process import Signals
from hotlap.measure.contest import Variant, contest
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
from hotlap.plan.catalogue import all_knobs, shortening
from hotlap.stats.compare import ratio

LEAST_RUNS, MOST_RUNS = 4, 8
NARROW = 0.05  # half the interval of these runs against themselves: more of them would tell no more
_NAME = "the job"

Told = Callable[[Variant, Trial], None]


@dataclass(frozen=True)
class Under:
    """The plan that a job is measured under, and its file as the user named it; without one, the job as it is."""

    file: str = ""
    plan: Plan = field(default_factory=Plan)

    def named(self, job: Job) -> str:
        return named(job.shown, self.file)


AS_IT_IS = Under()


def save(job: Job, path: Path, steps: int, told: Told, under: Under = AS_IT_IS) -> Baseline:
    """Measure the job and keep it in the file, in place of what the file holds of it on this machine."""
    known = read_baselines(path) if path.exists() else Baselines()
    measured = _measured(job, under, inspect_host(job=job), steps, told)
    others = [each for each in known.baselines if not _is_of(each, measured.named, measured.machine)]
    try:
        codec.write_json(path, Baselines((*others, measured)), shared=True)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", "choose another with --file FILE"
        ) from None
    return measured


def check(job: Job, path: Path, tolerance: float, steps: int, told: Told, under: Under = AS_IT_IS) -> Checked:
    """Measure the job again and hold it against the file. What is of another machine is refused, never converted."""
    host = inspect_host(job=job)
    before = find(read_baselines(path), path, under.named(job), machine_of(host))
    both = in_one_count(before, _measured(job, under, host, steps, told, before.figures.counts))
    if both is None:
        raise UsageError(
            f"the baseline counts {before.figures.counts}, which the batches of this job do not show.",
            "save it again: hotlap baseline save train.py",
        )
    return judged(*both, tolerance)


def read_baselines(path: Path) -> Baselines:
    """The file of `hotlap baseline save`."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}.", "make it: hotlap baseline save train.py")
    try:
        found: Baselines = codec.read_json(path, Baselines)
    except FactError as error:
        raise FactError(error.what, "save it again: hotlap baseline save train.py") from None
    return found


def find(known: Baselines, path: Path, named: str, machine: MachineIdentity) -> Baseline:
    """The baseline of a command, under its plan, on a machine; refused with what the file does hold."""
    of_command = [each for each in known.baselines if each.stored().named == named]
    if not of_command:
        held = ", ".join(sorted({f"`{each.stored().named}`" for each in known.baselines})) or "nothing"
        raise UsageError(
            f"{path} holds no baseline of `{named}`, it holds: {held}.", "hotlap baseline save adds one"
        )
    fitting = next((each for each in of_command if each.machine == machine), None)
    if fitting is None:
        there = "; ".join(each.machine.named for each in of_command)
        raise UsageError(
            f"{path} was measured on {there}, this is {machine.named}: nothing can be told.",
            "save one on this machine too, or run both versions here: hotlap compare -- old.py -- new.py",
        )
    return fitting


def _is_of(baseline: Baseline, named: str, machine: MachineIdentity) -> bool:
    return baseline.stored().named == named and baseline.machine == machine


def _measured(job: Job, under: Under, host: Host, steps: int, told: Told, counts: str = "") -> Baseline:
    """In the count that is given, else in what is steadiest in the first run."""
    folder = runfolder.folder_at_home("baseline", job.name)
    trials: list[Trial] = []
    paces: list[float] = []
    with Signals() as signals:
        shorter = shortening(all_knobs()) if under.plan.settings else frozenset()
        bench = Bench(job, folder, collect, signals, steps, counts=counts, shortening=shorter)
        while len(trials) < LEAST_RUNS or (len(trials) < MOST_RUNS and not _narrow(_figures(trials))):
            trials.append(_one(bench, job, under, told))
            bench = replace(bench, counts=bench.counts or _figures(trials)[0].counts)
            found = pace(host.cores)
            paces += [found] if found is not None else []
    measured = _baseline(job, host, _figures(trials), paces)
    return replace(measured, plan=under.file, settings=dict(under.plan.settings), refused=trials[-1].refused)


def _figures(trials: Sequence[Trial]) -> list[Figures]:
    """Of all runs, in one count."""
    return alike([each.figures for each in trials if each.figures])[0]


def _one(bench: Bench, job: Job, under: Under, told: Told) -> Trial:
    held = contest(bench, [Variant(_NAME, job, under.plan)], 1, told)
    if held.interrupted:
        raise KeyboardInterrupt
    trial = held.trials[_NAME][0]
    if trial.figures is None:
        how, without = (f"under {under.file}", "the plan") if under.file else ("by itself", "hotlap")
        raise JobError(f"the job did not train {how}: {trial.reason}.", f"run it without {without} first")
    return trial


def _narrow(figures: Sequence[Figures]) -> bool:
    rates = [each.throughput for each in figures]
    found = ratio(rates, rates, confidence=CONFIDENCE)
    return (found.high - found.low) / 2 <= NARROW


def _baseline(job: Job, host: Host, figures: Sequence[Figures], paces: Sequence[float]) -> Baseline:
    rates = tuple(each.throughput for each in figures)
    middle = figures[rates.index(median_low(rates))]
    seen = [counts for counts in middle.rates if all(counts in each.rates for each in figures)]
    return Baseline(
        command=job.shown,
        machine=machine_of(host),
        saved=time.strftime("%Y-%m-%d"),
        rates=rates,
        paces=tuple(paces),
        figures=replace(
            middle,
            foreign_cores=max((each.foreign_cores or 0.0) for each in figures),
            rates={counts: middle.rates[counts] for counts in seen},
        ),
        by_count={counts: tuple(each.rates[counts].per_s for each in figures) for counts in seen},
        versions={key: host.versions[key] for key in ("python", "torch") if key in host.versions},
    )
