"""What bench/fuzz.py mutates beside plans and profiles: folders of searches, baselines and runs under a plan.

They are made of the facts' own classes, as the commands write them, since real ones take minutes. They are read as
`hotlap report`, `hotlap tune` (going on), `hotlap baseline check` and `hotlap watch` read them; nothing is run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hotlap.facts import codec
from hotlap.facts.baseline import Baseline, Baselines, in_one_count, machine_of
from hotlap.facts.diagnosis import Interval
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Goal, Rate, Status, Trial
from hotlap.facts.verdict import Gain, Guarded, KnobVerdict, Ruling, Sameness, Tuning
from hotlap.judge.gain import check as judged
from hotlap.launch.process import Signals
from hotlap.measure.ledger import Answered, Ledger, Ruled
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect, live_reader
from hotlap.pipeline.baseline import find, read_baselines
from hotlap.pipeline.outcome import outcome_of
from hotlap.plan.catalogue import all_knobs, checked
from hotlap.report.checked import checked_view
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.json import Json
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import Terminal, draw
from hotlap.search.candidates import Said, SearchBudget, Wish
from hotlap.search.run import resume
from hotlap.search.search import Search

RATES = {"samples": Rate(600.0, 0.05), "steps": Rate(1.2, 0.05)}
SLOW = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60, 1.0, None, RATES)
FASTER = {"samples": Rate(6000.0, 0.05), "steps": Rate(12.0, 0.05)}
FAST = replace(SLOW, throughput=6000.0, step_ms=80.0, data_ms=2.0, rates=FASTER)
GAIN = Gain(9.0, Interval(8.0, 10.5), 8)
SAME = Guarded(Sameness.SAME, "bitwise", "batches and losses are bit-equal after 24 steps", 24, 1)
KEPT = KnobVerdict("cache-dataset", "memory", Ruling.KEEP, GAIN, (3.0, 7.0), SAME)
DROPPED = KnobVerdict("num-workers", 2, Ruling.DROP, Gain(-0.4, Interval(-0.5, -0.3)), reason="it is slower")
PLAN = Plan({"cache-dataset": "memory"})
HOST = Host("Linux 6.1", "AMD EPYC 7B13", 2, 1, 24 << 30, 20 << 30, None, None, "fork")
WISH = Wish()
FORMS = (Html, Json, Markdown, Terminal)


@dataclass(frozen=True)
class Stored:
    """A folder that hotlap has written, which of its files are mutated, and how a command reads it."""

    name: str
    folder: Path
    files: tuple[str, ...]
    read: Callable[[Path, random.Random], None]


def all_stored(place: Path) -> list[Stored]:
    searched, saved, ran = (place / name for name in ("searched", "saved", "ran"))
    for folder in (searched, saved, ran):
        folder.mkdir()
    _write_search(searched)
    codec.write_json(saved / "baseline.json", Baselines((_baseline(),)))
    _write_run(ran)
    facts = ("tuning.json", "job.json", "host.json", "ledger.jsonl")
    return [
        Stored("searches", searched, facts, _report),
        Stored("searches gone on with", searched, ("ledger.jsonl",), _go_on),
        Stored("baselines", saved, ("baseline.json",), _check_baseline),
        Stored("runs under a plan", ran, ("applied.json", "job.json", "host.json"), _look),
    ]


def _job(folder: Path) -> Job:
    return Job(("python", "train.py"), str(folder), "train")


def _write_search(folder: Path) -> None:
    codec.write_json(folder / "job.json", _job(folder))
    codec.write_json(folder / "host.json", HOST)
    tuning = Tuning(SLOW, FAST, PLAN, GAIN, SAME, (KEPT, DROPPED), {"cache-dataset": GAIN}, 3, 20.0, "spent")
    codec.write_json(folder / "tuning.json", tuning)
    ledger = Ledger(folder, _job(folder))
    ledger.add(Trial(1, Plan(), Status.DONE, 3.0, SLOW, stages={"data": 700.0, "forward": 90.0}))
    ledger.add(Trial(2, PLAN, Status.DONE, 3.0, FAST, stood=("cache-dataset",), stages={"data": 2.0}))
    ledger.add(Trial(3, Plan({"num-workers": 2}), Status.DEAD, 4.0, reason="RuntimeError: boom"))
    ledger.answer(Answered(PLAN.settings, SAME))
    ledger.rule(Ruled(WISH.words, DROPPED, {}))
    ledger.rule(Ruled(WISH.words, KEPT, PLAN.settings))


def _baseline() -> Baseline:
    rates = (590.0, 600.0, 610.0, 605.0)
    return Baseline(
        command="python train.py",
        machine=machine_of(HOST),
        saved="2026-11-16",
        rates=rates,
        paces=(50.0, 51.0, 50.5, 50.2),
        figures=SLOW,
        versions={"torch": "2.13"},
        by_count={"samples": rates, "steps": (1.2, 1.2, 1.2, 1.2)},
    )


def _write_run(folder: Path) -> None:
    codec.write_json(folder / "job.json", _job(folder))
    codec.write_json(folder / "host.json", HOST)
    applied: Mapping[str, Any] = {
        "exit_code": 0,
        "starts": 1,
        "steps": 80,
        "steps_per_s": 12.5,
        "fitted": [{"knob": "cache-dataset", "acts": True, "reason": ""}],
        "step_downs": [],
        "breaches": [{"knob": "cache-dataset", "what": "item 3", "batches": 4}],
        "settings": {"cache-dataset": "memory"},
    }
    codec.write_json(folder / "applied.json", applied)


def _report(folder: Path, chance: random.Random) -> None:
    view = outcome_of(folder)
    assert view is not None
    chance.choice(FORMS)().render(view)


def _go_on(folder: Path, _: random.Random) -> None:
    """All that a search takes from its ledger before its first trial, and by what it judges later ones."""
    knobs = all_knobs()
    said = Said(_nothing, _nothing, _nothing)
    with Signals() as signals:
        bench = Bench(_job(folder), folder, collect, signals, 10)
        search = Search(bench, Ledger(folder, _job(folder)), HOST, knobs, WISH, SearchBudget(trials=1), said)
        resume(search)
    assert checked(search.plan.settings, knobs) == search.plan.settings, "a plan that is none"
    for goal in Goal:
        search.ledger.groups(goal)
    assert all(rate > 0 for plan in (Plan(), PLAN) for rate in search.ledger.rates(plan)), "no such rate"
    assert search.ledger.next_number < 1 << 31, "no such number of a trial"
    assert search.fits(2) in (True, False)


def _nothing(_: object) -> None:
    """Progress."""


def _check_baseline(folder: Path, chance: random.Random) -> None:
    known = read_baselines(folder / "baseline.json")
    before = find(known, folder / "baseline.json", "python train.py", machine_of(HOST))
    both = in_one_count(before, _baseline())
    if both is None:
        return
    found = judged(*both, 0.1)
    assert 0.0 < found.ratio.value < float("inf"), "no such ratio"
    draw(checked_view(found), chance.choice(("en", "zh")))


def _look(folder: Path, _: random.Random) -> None:
    """What `hotlap watch` shows; damage is told among its problems, and nothing is refused."""
    look = live_reader(folder).look(ended=True)
    assert look["exit_code"] is None or 0 <= look["exit_code"] < 1 << 32, "no such exit code"
    assert len(str(look["problems"])) < 2048, "a message that is too long"
