"""The wiring of `hotlap tune` and `hotlap compare`: trials in turn, each in fresh processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from hotlap.errors import UsageError
from hotlap.facts import codec, private
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Tuning
from hotlap.host.machine import inspect_host
from hotlap.launch import runfolder
from hotlap.launch.process import Signals
from hotlap.launch.warm import NAME as IMPORTS
from hotlap.launch.warm import Warmth
from hotlap.measure.contest import LEAST_ROUNDS, Variant, contest
from hotlap.measure.interleaved_round import possible
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect, propose
from hotlap.pipeline.outcome import COMPARISON
from hotlap.plan.catalogue import all_knobs, shortening
from hotlap.plan.file import read_plan
from hotlap.ports.knob import Knob
from hotlap.propose.presets import PRESETS
from hotlap.report.comparison import comparison_view
from hotlap.seams.fitter import BOUNDS
from hotlap.search.candidates import Said, SearchBudget, Wish
from hotlap.search.run import run
from hotlap.search.search import Search

MOST_ROUNDS = 12  # of a comparison: an interval that is still wide then is the machine's


def tune(
    job: Job,
    knobs: Mapping[str, Knob],
    wish: Wish,
    budget: SearchBudget,
    steps: int,
    out: str | None,
    said: Said,
    progress: Callable[[str], None],
) -> tuple[Path, Tuning]:
    """Search for a plan; the folder goes on where an earlier search of the same job has left it."""
    folder = _folder(job, out)
    host = inspect_host(job=job)
    codec.write_json(folder / "job.json", job)
    codec.write_json(folder / "host.json", host)
    (folder / IMPORTS).unlink(
        missing_ok=True
    )  # of an earlier search: the script may import something else by now
    with Signals() as signals, closing(Warmth(job, folder)) as warmth:
        bounds = {key: sorted(each.value for each in wish.allowed) for key in knobs}
        bench = Bench(
            job,
            folder,
            collect,
            signals,
            steps,
            progress,
            options={BOUNDS: bounds},
            shortening=shortening(knobs),
            warmth=warmth,
        )
        search = Search(bench, Ledger(folder, job), host, knobs, wish, budget, said)
        return folder, run(search)


def _folder(job: Job, out: str | None) -> Path:
    return _given(out) if out else runfolder.folder_at_home("tune", job.name)


def _given(out: str) -> Path:
    try:
        private.make_folder(Path(out))
    except OSError as error:
        raise UsageError(
            f"the folder {out} cannot be written: {error.strerror}.", "choose another with --out DIR"
        ) from None
    return Path(out).resolve()


def compare(
    variants: Sequence[Variant],
    steps: int,
    budget: SearchBudget,
    out: str | None,
    told: Callable[[Variant, Trial], None],
) -> dict[str, Any]:
    """The view of a comparison, the first variant being what the others are held against."""
    folder = _given(out) if out else runfolder.folder_at_home("compare")
    started = time.monotonic()
    rounds = MOST_ROUNDS if budget.trials is None else max(2, budget.trials // len(variants))

    def spent() -> bool:
        return budget.seconds is not None and time.monotonic() - started > budget.seconds

    with Signals() as signals:
        bench = Bench(variants[0].job, folder, collect, signals, steps, shortening=shortening(all_knobs()))
        # The first round in slices may be thrown away: too much where only a few rounds are to be had.
        sliced = rounds >= LEAST_ROUNDS and possible(len(variants))
        held = contest(bench, variants, rounds, told, spent, sliced=sliced)
    if held.interrupted and not held.trials:
        raise KeyboardInterrupt
    ratios = {each.name: held.ratio(each.name) for each in variants[1:]}
    known = {name: (each.value, each.low, each.high) if each else None for name, each in ratios.items()}
    command = " / ".join(dict.fromkeys(each.job.shown for each in variants))
    view = comparison_view(
        inspect_host(job=variants[0].job).named,
        command,
        held.told,
        known,
        sliced=held.sliced,
        obstacle=held.obstacle,
    )
    codec.write_json(folder / COMPARISON, view)
    return view


def plan_named(name: str, job: Job) -> Plan:
    """`none`, a preset, or a plan's file."""
    if name == "none":
        return Plan()
    knobs = all_knobs()
    if name in PRESETS and not Path(name).exists():
        return propose(name, runfolder.profile_of(job), knobs, set()).plan
    return read_plan(Path(name), knobs)


# The view of what a folder of `hotlap tune` or `hotlap compare` holds; reads, and runs nothing.
