"""The wiring of `hotlap baseline`: runs of a job with the machine's own pace beside each, kept in a file or held
against it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median_low

from hotlap.errors import FactError, JobError, UsageError
from hotlap.facts import codec
from hotlap.facts.baseline import Baseline, Baselines, Checked, Machine, alike, machine_of
from hotlap.facts.counting import alike as told_alike
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Trial
from hotlap.judge.drift import CONFIDENCE
from hotlap.judge.drift import check as judged
from hotlap.launch import runfolder
from hotlap.launch.calibration import pace
from hotlap.launch.host import inspect_host
from hotlap.launch.process import Signals
from hotlap.measure.contest import Variant, contest
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
from hotlap.stats.compare import ratio

LEAST_RUNS, MOST_RUNS = 4, 8
NARROW = 0.05  # half the interval of these runs against themselves: more of them would tell no more
_NAME = "the job"

Told = Callable[[Variant, Trial], None]


def save(job: Job, path: Path, steps: int, told: Told) -> Baseline:
    """Measure the job and keep it in the file, in place of what the file holds of it on this machine."""
    known = read_baselines(path) if path.exists() else Baselines()
    measured = _measured(job, inspect_host(), steps, told)
    others = [each for each in known.baselines if not _is_of(each, measured.command, measured.machine)]
    try:
        codec.write_json(path, Baselines((*others, measured)))
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}.", "choose another with --file FILE"
        ) from None
    return measured


def check(job: Job, path: Path, tolerance: float, steps: int, told: Told) -> Checked:
    """Measure the job again and hold it against the file. What is of another machine is refused, never converted."""
    host = inspect_host()
    before = find(read_baselines(path), path, job.shown, machine_of(host))
    both = alike(before, _measured(job, host, steps, told, before.figures.counts))
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


def find(known: Baselines, path: Path, command: str, machine: Machine) -> Baseline:
    """The baseline of a command on a machine; refused with what the file does hold."""
    of_command = [each for each in known.baselines if each.command == command]
    if not of_command:
        held = ", ".join(sorted({each.command for each in known.baselines})) or "nothing"
        raise UsageError(
            f"{path} holds no baseline of `{command}`, it holds: {held}.", "hotlap baseline save adds one"
        )
    fitting = next((each for each in of_command if each.machine == machine), None)
    if fitting is None:
        there = "; ".join(each.machine.named for each in of_command)
        raise UsageError(
            f"{path} was measured on {there}, this is {machine.named}: nothing can be told.",
            "save one on this machine too, or run both versions here: hotlap compare -- old.py -- new.py",
        )
    return fitting


def _is_of(baseline: Baseline, command: str, machine: Machine) -> bool:
    return baseline.command == command and baseline.machine == machine


def _measured(job: Job, host: Host, steps: int, told: Told, counts: str = "") -> Baseline:
    """In the count that is given, else in what is steadiest in the first run."""
    folder = runfolder.folder_at_home("baseline", job.name)
    figures: list[Figures] = []
    paces: list[float] = []
    with Signals() as signals:
        bench = Bench(job, folder, collect, signals, steps, counts=counts)
        while len(figures) < LEAST_RUNS or (len(figures) < MOST_RUNS and not _narrow(figures)):
            figures.append(_one(bench, job, told))
            bench = replace(bench, counts=bench.counts or figures[0].counts)
            found = pace(host.cores)
            paces += [found] if found is not None else []
    return _baseline(job, host, told_alike(figures)[0], paces)


def _one(bench: Bench, job: Job, told: Told) -> Figures:
    held = contest(bench, [Variant(_NAME, job, Plan())], 1, told)
    if held.interrupted:
        raise KeyboardInterrupt
    trial = held.trials[_NAME][0]
    if trial.figures is None:
        raise JobError(f"the job did not train by itself: {trial.reason}.", "run it without hotlap first")
    return trial.figures


def _narrow(figures: Sequence[Figures]) -> bool:
    rates = [each.throughput for each in told_alike(figures)[0]]
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
