"""What a search tries in fresh processes, within what the user allows, and what can stand side by side in a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hotlap.cost.reading import training_loader
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Goal, Status, Trial
from hotlap.facts.verdict import Gain, Guarded, KnobVerdict
from hotlap.judge.gain import LEAST
from hotlap.measure.contest import Duel
from hotlap.ports.knob import UNCHANGED, Knob, Numerics
from hotlap.ports.values import Whole

# Batch sizes: doubled as long as throughput rises; halved for memory, with the effective batch kept.
#
# A larger batch changes how many samples an optimizer step sees, so the learning rate goes with it (`scale-lr`). A
# smaller one goes with `accumulate`, so that an optimizer step sees as many samples as before.


BATCH, ACCUMULATE, SCALE_LR = "batch-size", "accumulate", "scale-lr"
_TIMES = 2
_LINEAR = frozenset({"SGD"})  # for which the rate grows with the batch; Adam and its kin take the root


@dataclass(frozen=True)
class Batch:
    """A batch size to try next, and what goes with it."""

    size: int
    beside: Mapping[str, Any]


def next_batch(timeline: Timeline, plan: Plan, goal: Goal, keep: bool) -> Batch | None:
    """From the size that the incumbent trains with. `keep`: an optimizer step must see as many samples as it does."""
    found = training_loader(timeline)
    now = found[1].batch_size if found else None
    if found is None or not now:
        return None
    if goal is Goal.MEMORY:
        return _halved(now, plan)
    length = found[1].dataset.length
    if keep or plan.settings.get(ACCUMULATE, 1) != 1 or (length is not None and now * _TIMES > length):
        return None
    return Batch(now * _TIMES, {SCALE_LR: rate_rule(timeline)})


def _halved(now: int, plan: Plan) -> Batch | None:
    if now % _TIMES:
        return None
    return Batch(now // _TIMES, {ACCUMULATE: int(plan.settings.get(ACCUMULATE, 1)) * _TIMES})


def rate_rule(timeline: Timeline) -> str:
    """How the learning rate goes with a larger batch."""
    kinds = {each.kind for each in timeline.optimizers}
    return "linear" if kinds and kinds <= _LINEAR else "sqrt"


AGAIN = 1.5  # times what it could save when it was dropped: then there is reason to try it once more
_FOR_MEMORY = frozenset({"grad-checkpointing", "precision", BATCH, "set-to-none"})

Key = tuple[str, str]


@dataclass(frozen=True)
class Candidate:
    """A setting to try. `bound` is the share of the step that it attacks: exposed time, the most that it could save.

    `beside` are settings that go with it, as the learning rate's with the batch.
    """

    knob: str
    setting: Any
    bound: float
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.knob, str(self.setting)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**self.beside, self.knob: self.setting}


@dataclass(frozen=True)
class Wish:
    """What the user wants of a search."""

    goal: str = "speed"
    allowed: frozenset[Numerics] = frozenset(UNCHANGED)
    keep_batch: bool = False
    memory_limit: int | None = None

    @property
    def words(self) -> str:
        """Verdicts hold for an equal wish only."""
        return f"{self.goal} {sorted(self.allowed)} {self.keep_batch} {self.memory_limit}"


def candidates(
    offered: Iterable[Candidate],
    timeline: Timeline,
    knobs: Mapping[str, Knob],
    plan: Plan,
    wish: Wish,
    tried: Mapping[Key, float],
) -> list[Candidate]:
    """Of what is on offer, what may be tried beside a plan: the largest bound first. `tried` says what each could save
    when it was tried."""
    new = [
        replace(each, beside={key: each.beside[key] for key in each.beside if key not in plan.settings})
        for each in (*offered, *_smaller_batch(timeline, knobs, plan, wish))
        if plan.settings.get(each.knob) != each.setting
        and not (each.key in tried and each.bound < AGAIN * tried[each.key])
        and (wish.goal != Goal.MEMORY or each.knob in _FOR_MEMORY)
    ]
    return sorted(_one_batch(new, timeline, plan, wish), key=lambda each: -each.bound)


def with_its_rate(candidate: Candidate, timeline: Timeline) -> Candidate:
    """A larger batch takes the learning rate along."""
    if candidate.knob != BATCH:
        return candidate
    return replace(candidate, beside={**candidate.beside, SCALE_LR: rate_rule(timeline)})


def composed(plan: Plan, candidate: Candidate, knobs: Mapping[str, Knob]) -> Plan:
    """The plan with the candidate; a setting that makes no sense beside it gives way."""
    new = candidate.settings
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
    """Of each knob one, and none for which the setting of another knob, also of the plan, would have to go."""
    found: list[Candidate] = []
    for each in ranked:
        before = together(plan, found, knobs).settings
        after = composed(Plan(before), each, knobs).settings
        stays = all(after.get(key) == before[key] for key in before if key != each.knob)
        if stays and each.knob not in {other.knob for other in found}:
            found.append(each)
    return found


def simpler(candidate: Candidate, plan: Plan, knobs: Mapping[str, Knob]) -> bool:
    """Whether it asks less of the machine than the setting it replaces: then a tie is enough."""
    before = plan.settings.get(candidate.knob)
    ordered = isinstance(knobs[candidate.knob].values, Whole) and candidate.knob != ACCUMULATE
    return bool(ordered and before is not None and candidate.setting < before)


def _clash(key: str, value: Any, other: str, setting: Any, knobs: Mapping[str, Knob]) -> bool:
    return bool(knobs[key].clash(value, other, setting) or knobs[other].clash(setting, key, value))


def _smaller_batch(
    timeline: Timeline, knobs: Mapping[str, Knob], plan: Plan, wish: Wish
) -> Iterable[Candidate]:
    """No cause asks for it: it saves memory, not time."""
    batch = next_batch(timeline, plan, Goal.MEMORY, wish.keep_batch) if wish.goal == Goal.MEMORY else None
    if batch is not None and {BATCH, ACCUMULATE} <= knobs.keys():
        yield Candidate(BATCH, batch.size, 1.0, batch.beside)


def _one_batch(
    chosen: Iterable[Candidate], timeline: Timeline, plan: Plan, wish: Wish
) -> Iterable[Candidate]:
    """Sizes are climbed step by step, so that throughput decides and not what fits."""
    others = [each for each in chosen if each.knob != BATCH]
    sizes = [each for each in chosen if each.knob == BATCH]
    batch = next_batch(timeline, plan, Goal(wish.goal), wish.keep_batch) if sizes else None
    here = [each for each in sizes if batch is not None and each.setting == batch.size]
    return [*others, *(replace(each, beside=batch.beside) for each in here[:1] if batch is not None)]


# What a search is given beside the job: how long it may take, and whom it tells of its progress.


@dataclass(frozen=True)
class SearchBudget:
    """Seconds or trials, whichever is given."""

    seconds: float | None = None
    trials: int | None = None


@dataclass
class Said:
    """How a search tells of its progress."""

    trial: Callable[[Trial], None]
    verdict: Callable[[KnobVerdict], None]
    note: Callable[[str], None]


# Why a search has ended, and why a setting is not kept: the words that reports translate.


INTERRUPTED = "interrupted: the best so far is kept"
SPENT = "the budget is spent"
NOTHING_LEFT = "all that could save 3 % was tried"
NO_BETTER = "measured once more, the plan was not measurably faster than the original script"
NOT_SWITCHED = "it cannot be switched while the script runs"
NO_TIME = "not tried in fresh processes: too little of the budget was left"
KEEPS_BATCH = "not tried in fresh processes: --keep-batch is given"
TOO_LARGE_TO_JUDGE = "not tried in fresh processes: the guard sees too few batches of this size"


def why(trial: Trial) -> str:
    word = {Status.DEAD: "the job died", Status.HUNG: "the job hung"}.get(
        trial.status, "no steady step was made"
    )
    return f"{word}: {trial.reason}"


def cannot_act(reason: str) -> str:
    return f"it cannot act: {reason}"


def not_allowed(numerics: str) -> str:
    return f"changes {numerics}: add --allow {numerics}"


def not_measured(reason: str, barrier: str) -> str:
    """Measuring needs no permission: what was not measured has another reason beside the barrier to keeping it."""
    return f"not measured ({reason}); {barrier}" if barrier.startswith("changes ") else barrier


def needs_permission(numerics: str) -> str:
    """`numerics` are words as `--allow` takes them."""
    return f"what is left changes the numbers: add --allow {numerics}"


def too_little(left: str, what: str, needed: str) -> str:
    """Of a budget that is not spent."""
    return f"{left} of the budget were left; {what} needs about {needed}, with its guard and proof"


def the_guard_says(guarded: Guarded) -> str:
    return f"the guard says {guarded.sameness.value}: {guarded.reason}"


def of_the_whole(guarded: Guarded) -> str:
    return f"of the whole plan {the_guard_says(guarded)}"


def slower(gain: Gain | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.interval.high < 0:
        return "it is slower"
    if gain.interval.high < LEAST:
        return f"it brings less than {LEAST * 100:.0f} %"
    return "the gain is within the noise" if gain.value > 0 else "not measurably faster"


def not_worth(held: Duel, speed: Gain | None) -> str:
    """For goals in which memory counts."""
    memory = f"{held.memory:+.0%} peak memory" if held.memory is not None else "memory was not measured"
    return f"{memory} and {speed.value:+.0%} speed are no better by the goal" if speed else memory
