"""What to try next: settings that relieve the present bottleneck, by what is known or predicted of their gain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hotlap.facts.diagnosis import Diagnosis, Interval, Severity
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Goal
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.values import NotAllowedError, Whole
from hotlap.propose.batch import ACCUMULATE, BATCH, next_batch

WORTH = 0.03  # of the step: a knob that could save less at most is not tried
UNPROMISING = 0.02  # gain to be expected: what is kept must bring 3 %, and below this that would be by chance
AGAIN = 1.5  # times what it promised when it was dropped: then there is reason to try it once more
_FOR_MEMORY = frozenset({"grad-checkpointing", "precision", BATCH, "set-to-none"})

Key = tuple[str, str]


@dataclass(frozen=True)
class Candidate:
    """A setting to try, and what was predicted of it; None where only the most it could save is known.

    `beside` are settings that go with it, as the learning rate's with the batch.
    """

    knob: str
    setting: Any
    predicted: float | None
    interval: Interval | None
    ceiling: float
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.knob, str(self.setting)

    @property
    def promise(self) -> float:
        """Of what nobody could predict, a small part of the most it could save: what was measured goes first."""
        return self.predicted if self.predicted is not None else 0.25 * self.ceiling


@dataclass(frozen=True)
class Wish:
    """What the user wants of a search."""

    goal: str = "speed"
    allowed: frozenset[Numerics] = frozenset({Numerics.BITWISE})
    keep_batch: bool = False
    memory_limit: int | None = None

    @property
    def words(self) -> str:
        """Verdicts hold for an equal wish only."""
        return f"{self.goal} {sorted(self.allowed)} {self.keep_batch} {self.memory_limit}"


def candidates(
    diagnosis: Diagnosis,
    host: Host,
    timeline: Timeline,
    knobs: Mapping[str, Knob],
    plan: Plan,
    wish: Wish,
    tried: Mapping[Key, float],
) -> list[Candidate]:
    """The most promising first. `tried` says what each promised when it was tried."""
    offered = [
        *_from_fixes(diagnosis, knobs),
        *_from_knobs(host, timeline, knobs),
        *_smaller_batch(timeline, knobs, plan, wish),
    ]
    chosen: dict[Key, Candidate] = {}
    known = set[Key]()
    for each in offered:
        if each.key in known or plan.settings.get(each.knob) == each.setting:
            continue  # what a rule predicts counts before what a knob could save at most
        known.add(each.key)
        if each.key in tried and each.promise < AGAIN * tried[each.key]:
            continue
        if _wanted(each, knobs[each.knob], wish):
            chosen[each.key] = each
    found = _one_batch(chosen.values(), timeline, plan, wish)
    brought = [_with_what_it_brings(each, host, timeline, knobs, plan, wish) for each in found]
    return sorted(brought, key=lambda each: -each.promise)


def composed(plan: Plan, candidate: Candidate, knobs: Mapping[str, Knob]) -> Plan:
    """The plan with the candidate; a setting that makes no sense beside it gives way."""
    new = {**candidate.beside, candidate.knob: candidate.setting}
    kept = {
        key: value
        for key, value in plan.settings.items()
        if key not in new and not any(_clash(key, value, *each, knobs) for each in new.items())
    }
    return Plan({**kept, **new})


def together(plan: Plan, group: Iterable[Candidate], knobs: Mapping[str, Knob]) -> Plan:
    """The plan with all of them."""
    for each in group:
        plan = composed(plan, each, knobs)
    return plan


def side_by_side(ranked: Iterable[Candidate], plan: Plan, knobs: Mapping[str, Knob]) -> list[Candidate]:
    """Of each knob one, and none for which another setting, also of the plan, would have to go."""
    found: list[Candidate] = []
    for each in ranked:
        before = together(plan, found, knobs)
        if each.knob not in {other.knob for other in found} and (
            before.settings.items() <= composed(before, each, knobs).settings.items()
        ):
            found.append(each)
    return found


def opening(ranked: Iterable[Candidate], plan: Plan, knobs: Mapping[str, Knob]) -> list[Candidate]:
    """What a search may begin with, as one plan: all that is predicted to help even at the worst. Of knobs that relieve
    the same cause the best one: what the others would bring beside it is known only when it stands."""
    chosen: list[Candidate] = []
    for each in ranked:
        relieved = {cause for other in chosen for cause in knobs[other.knob].relieves}
        if each.interval is not None and each.interval.low > 0 and not knobs[each.knob].relieves & relieved:
            chosen.append(each)
    return side_by_side(chosen, plan, knobs)


def simpler(candidate: Candidate, plan: Plan, knobs: Mapping[str, Knob]) -> bool:
    """Whether it asks less of the machine than the setting it replaces: then a tie is enough."""
    before = plan.settings.get(candidate.knob)
    ordered = isinstance(knobs[candidate.knob].values, Whole) and candidate.knob != ACCUMULATE
    return bool(ordered and before is not None and candidate.setting < before)


def _clash(key: str, value: Any, other: str, setting: Any, knobs: Mapping[str, Knob]) -> bool:
    return bool(knobs[key].clash(value, other, setting) or knobs[other].clash(setting, key, value))


def _from_fixes(diagnosis: Diagnosis, knobs: Mapping[str, Knob]) -> Iterable[Candidate]:
    for finding in diagnosis.findings:
        for fix in finding.fixes:
            knob = knobs.get(fix.knob)
            if knob is None or (finding.severity is Severity.NOTE and (fix.predicted_gain or 0.0) < WORTH):
                continue
            try:
                setting = knob.values.read(fix.setting)
            except NotAllowedError:
                continue  # a rule may name a value that this knob does not take
            yield Candidate(fix.knob, setting, fix.predicted_gain, fix.interval, finding.share)


def _from_knobs(host: Host, timeline: Timeline, knobs: Mapping[str, Knob]) -> Iterable[Candidate]:
    for knob in knobs.values():
        most = knob.ceiling(timeline, host)
        if most >= WORTH:
            for setting in knob.settings(host, timeline):
                yield Candidate(knob.id, setting, None, None, most)


def _smaller_batch(
    timeline: Timeline, knobs: Mapping[str, Knob], plan: Plan, wish: Wish
) -> Iterable[Candidate]:
    """No cause asks for it: it saves memory, not time."""
    batch = next_batch(timeline, plan, Goal.MEMORY, wish.keep_batch) if wish.goal == Goal.MEMORY else None
    if batch is not None and {BATCH, ACCUMULATE} <= knobs.keys():
        yield Candidate(BATCH, batch.size, None, None, 1.0, batch.beside)


def _one_batch(
    chosen: Iterable[Candidate], timeline: Timeline, plan: Plan, wish: Wish
) -> Iterable[Candidate]:
    """Sizes are climbed step by step, so that throughput decides and not what fits."""
    others = [each for each in chosen if each.knob != BATCH]
    sizes = [each for each in chosen if each.knob == BATCH]
    batch = next_batch(timeline, plan, Goal(wish.goal), wish.keep_batch) if sizes else None
    here = [each for each in sizes if batch is not None and each.setting == batch.size]
    return [*others, *(_with_its_own(each, batch.beside) for each in here[:1] if batch is not None)]


def _with_what_it_brings(
    candidate: Candidate, host: Host, timeline: Timeline, knobs: Mapping[str, Knob], plan: Plan, wish: Wish
) -> Candidate:
    """Unless it switches off, or what it brings stands already, is not on offer, or is not allowed."""
    if candidate.setting in (False, "off"):
        return candidate
    brought = {
        key: setting
        for key, setting in knobs[candidate.knob].brings.items()
        if key in knobs and key not in plan.settings and knobs[key].numerics in wish.allowed
        if setting in knobs[key].settings(host, timeline)
    }
    return _with_its_own(candidate, {**candidate.beside, **brought}) if brought else candidate


def _with_its_own(candidate: Candidate, beside: Mapping[str, Any]) -> Candidate:
    return Candidate(**{**vars(candidate), "beside": beside})


def _wanted(candidate: Candidate, knob: Knob, wish: Wish) -> bool:
    if knob.numerics not in wish.allowed or candidate.promise < UNPROMISING:
        return False
    return wish.goal != Goal.MEMORY or candidate.knob in _FOR_MEMORY
