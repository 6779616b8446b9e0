"""The wiring of `hotlap tune` and `hotlap compare`: trials in turn, each in fresh processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Tuning
from hotlap.launch import runfolder
from hotlap.launch.host import inspect_host
from hotlap.launch.process import Signals
from hotlap.measure.contest import Variant, contest
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect, propose
from hotlap.pipeline.search import Budget, Said, Search
from hotlap.ports.knob import Knob
from hotlap.propose.presets import PRESETS
from hotlap.propose.search import Wish
from hotlap.report.comparison import comparison_view
from hotlap.seams.catalogue import all_knobs
from hotlap.seams.plan_file import read_plan


def tune(
    job: Job,
    knobs: Mapping[str, Knob],
    wish: Wish,
    budget: Budget,
    steps: int,
    out: str | None,
    said: Said,
    progress: Callable[[str], None],
) -> tuple[Path, Tuning]:
    """Search for a plan; the folder goes on where an earlier search of the same job has left it."""
    folder = _folder(job, out)
    host = inspect_host(measure=True)
    codec.write_json(folder / "job.json", job)
    codec.write_json(folder / "host.json", host)
    with Signals() as signals:
        bench = Bench(job, folder, collect, signals, steps, progress)
        search = Search(bench, Ledger(folder, job), host, knobs, wish, budget, said)
        return folder, search.run()


def _folder(job: Job, out: str | None) -> Path:
    folder = Path(out) if out else Path(runfolder.HOME) / "tune" / job.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def compare(
    variants: Sequence[Variant],
    steps: int,
    rounds: int,
    out: str | None,
    told: Callable[[Variant, Trial], None],
) -> dict[str, Any]:
    """The view of a comparison, the first variant being what the others are held against."""
    folder = Path(out or f"{runfolder.HOME}/compare")
    folder.mkdir(parents=True, exist_ok=True)
    with Signals() as signals:
        bench = Bench(variants[0].job, folder.resolve(), collect, signals, steps)
        held = contest(bench, variants, rounds, told)
    if held.interrupted and not held.trials:
        raise KeyboardInterrupt
    ratios = {each.name: held.ratio(each.name) for each in variants[1:]}
    known = {name: (each.value, each.low, each.high) if each else None for name, each in ratios.items()}
    command = " / ".join(dict.fromkeys(each.job.shown for each in variants))
    return comparison_view(inspect_host().named, command, held.trials, known)


def plan_named(name: str, job: Job) -> Plan:
    """`none`, a preset, or a plan's file."""
    if name == "none":
        return Plan()
    knobs = all_knobs()
    if name in PRESETS and not Path(name).exists():
        return propose(name, runfolder.profile_of(job), knobs, set()).plan
    return read_plan(Path(name), knobs)
