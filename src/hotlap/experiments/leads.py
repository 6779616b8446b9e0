"""From a measured window to its experiments: what is worth trying on this job, and who leads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from hotlap.cost.reading import disturbed, training_loader
from hotlap.diagnose.rewrites import recognised
from hotlap.diagnose.run import all_rules, sight_of
from hotlap.experiments.analysis import Change
from hotlap.experiments.conductor import Conductor, MeasuredJob
from hotlap.facts.diagnosis import Cause
from hotlap.facts.experiment import FREE_INPUT, LEAST_GAIN, Experiments
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import is_rewrite
from hotlap.facts.summary import by_pace, summarise
from hotlap.facts.timeline import Ending, Stage, Timeline
from hotlap.launch.observe import Observer
from hotlap.plan.catalogue import all_knobs
from hotlap.ports.knob import Knob
from hotlap.ports.rule import Sight
from hotlap.probe import boundary
from hotlap.rewriting.knob import knob_for, knob_of

_HELD_BACK = (Stage.VALIDATE, Stage.CHECKPOINT)  # stages that do not come while experiments run
ONLY_FRESH = frozenset({"loader", "persistent-workers"})
"""What blocks of steps cannot show: one tunes itself for longer than a block lasts, one acts between two epochs."""
_WORTH_BOUNDING = 0.01  # of the step: a smaller wait for data needs no bound


class Experimenting:
    """Follows a job beside its observer, from the measured window on."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor

    @property
    def begun(self) -> bool:
        return self._conductor.begun

    def tick(self) -> bool:
        """False: the job does not end by itself. A fault in here ends the experiments, never the job's measurement."""
        try:
            self._conductor.tick()
        except Exception as fault:
            boundary.record("experiments", fault)
            boundary.attempt(self._conductor.give_up, f"{type(fault).__name__}: {fault}")
        return not self._conductor.overdue

    def results(self) -> Experiments | None:
        """None where none began."""
        found: Experiments | None = boundary.attempt(self._conductor.results)
        return found


@dataclass(frozen=True)
class Lead:
    """Begins experiments after the window of a job that runs under `plan`: on the changes that are `wanted` there."""

    host: Host
    seconds: float
    say: Callable[[str], None]
    plan: Plan = field(default_factory=Plan)
    wanted: Callable[[Change], bool] = lambda _: True
    one_turn_each: bool = False

    def __call__(self, folder: Path, observer: Observer, origin: int) -> Experimenting:
        from hotlap.timeline.gather import timelines_in

        def look() -> MeasuredJob | None:
            seen = timelines_in(folder, perf_counter_ns(), Ending.WINDOW, origin, observer.looks)
            return job_of(by_pace(seen), self.host, self.plan, self.wanted)

        def made() -> int:
            return observer.optimizer_steps

        conductor = Conductor(folder, self.seconds, look, made, self.say, one_turn_each=self.one_turn_each)
        return Experimenting(conductor)


def job_of(
    timelines: tuple[Timeline, ...], host: Host, plan: Plan, wanted: Callable[[Change], bool]
) -> MeasuredJob | None:
    """None where no step was steady. What the plan holds is not switched beside a change once more."""
    first = next((each for each in timelines if each.rank == 0), next(iter(timelines), None))
    summary = summarise(first) if first is not None else None
    if first is None or summary is None or not summary.n or not summary.step_ms:
        return None
    waits = summary.share(Stage.DATA)
    bound = (Change(FREE_INPUT, True, waits),) if waits >= _WORTH_BOUNDING else ()
    # The line that holds the time is known: no other change is as sure of what it attacks.
    offered = [
        *candidates_for(timelines, host, rewrite_knobs(timelines).values()),
        *candidates_for(timelines, host, all_knobs().values()),
    ]
    brought = {key for each in offered for key in each.beside}  # tried with what brings it along
    changes = [
        Change(knob, setting, most, {key: beside[key] for key in beside if key not in plan.settings})
        for knob, setting, most, beside in offered
        if knob not in ONLY_FRESH | brought
    ]
    chosen = tuple(change for change in changes if wanted(change))
    beside_ms = summary.ms(*_HELD_BACK)
    step_s = max(1e-6, (summary.step_ms - beside_ms) / 1e3)
    tried = (*bound, *chosen) if chosen else ()
    crowded = disturbed(first, host)
    return MeasuredJob(first.pid, first.world, step_s, beside_ms * 1e6, tried, _epoch_steps(first), crowded)


def _epoch_steps(timeline: Timeline) -> float:
    """Batches of an epoch over those of a step; 0 where the loader's length is not known."""
    found = training_loader(timeline)
    length = found[1].dataset.length if found else None
    if found is None or not length or not found[1].batch_size:
        return 0.0
    micro = timeline.steps.micro[timeline.steady_from :]
    return length / found[1].batch_size / max(1.0, sum(micro) / max(1, len(micro)))


# What the experiments should try on a job: settings of every knob that could save a noticeable part of its step.


OFF = (False, "off")  # settings that switch a knob off bring nothing along


class Try(NamedTuple):
    """A setting to try. `bound` is the exposed time that it attacks; `beside` is switched together with it."""

    knob: str
    setting: Any
    bound: float
    beside: Mapping[str, Any]


def candidates_for(timelines: Sequence[Timeline], host: Host, knobs: Iterable[Knob]) -> list[Try]:
    """The largest bound first. A cause that a rule suspects is enough: an experiment costs less than a wrong answer."""
    sight = sight_of(timelines, host)
    if sight is None:
        return []
    offered = {knob.id: knob for knob in knobs}
    seen = [rule.examine(sight) for rule in all_rules().values()]
    suspected = {each.cause: each.share for each in seen if each is not None}
    found = [
        Try(knob.id, setting, bound, _beside(knob, setting, sight, offered))
        for knob in offered.values()
        if (bound := _bound(knob, sight, suspected)) >= LEAST_GAIN
        for setting in knob.settings(host, sight.timeline)
    ]
    return sorted(found, key=lambda each: -each.bound)


def _bound(knob: Knob, sight: Sight, suspected: Mapping[Cause, float]) -> float:
    exposed = max((suspected.get(cause, 0.0) for cause in knob.relieves), default=0.0)
    return min(1.0, max(exposed, knob.ceiling(sight.timeline, sight.host)))


def _beside(knob: Knob, setting: Any, sight: Sight, knobs: Mapping[str, Knob]) -> dict[str, Any]:
    """What the knob brings along, where that is on offer on this job."""
    if setting in OFF:
        return {}
    return {
        key: brought
        for key, brought in knob.brings.items()
        if key in knobs and brought in knobs[key].settings(sight.host, sight.timeline)
    }


# Rewrites of the user's source among the other settings: which a timeline offers, and what is stored of them.


def rewrite_knobs(timelines: Sequence[Timeline]) -> dict[str, Knob]:
    """One for each rewrite that could save time; a job runs in the folder that its search was started in."""
    found = boundary.attempt(recognised, timelines, str(Path.cwd())) or ()
    knobs = [knob_for(each) for each in found]
    return {knob.id: knob for knob in knobs if knob is not None}


class Knobs(dict[str, Knob]):
    """Knobs of a search. A rewrite is known by its name, before a timeline has shown how much it holds."""

    def __missing__(self, key: str) -> Knob:
        if not is_rewrite(key):
            raise KeyError(key)
        self[key] = knob_of(key)
        return self[key]
