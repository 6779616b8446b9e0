"""Two plans in turn (A B B A ...), each in fresh processes, until the interval decides or the rounds are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Status, Trial
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench, disturbed
from hotlap.stats.compare import Scatter, pooled

_MOST_REPEATS = 2

Decide = Callable[[Sequence[float], Sequence[float], Scatter | None, bool], bool]
Told = Callable[[Trial], None]


@dataclass(frozen=True)
class Duel:
    """What both brought. `failed` is the challenger's trial that died, hung or made no step."""

    before: tuple[float, ...]
    after: tuple[float, ...]
    scatter: Scatter | None
    failed: Trial | None = None
    seen: tuple[Timeline, ...] = ()  # of the challenger's last trial
    last: Trial | None = None
    interrupted: bool = False


def run_trial(bench: Bench, ledger: Ledger, plan: Plan, told: Told) -> tuple[Trial, tuple[Timeline, ...]]:
    """A trial in the ledger; one that others have disturbed is repeated, and told by its figures if it stays so."""
    for _ in range(_MOST_REPEATS):
        trial, seen = bench.trial(ledger.next_number, plan)
        ledger.add(trial)
        told(trial)
        if not disturbed(trial):
            break
    return trial, seen


def duel(
    bench: Bench, ledger: Ledger, incumbent: Plan, challenger: Plan, rounds: int, decide: Decide, told: Told
) -> Duel:
    """`decide(before, after, scatter, final)` says whether the answer is known."""
    before: list[float] = []
    after: list[float] = []
    seen: tuple[Timeline, ...] = ()
    last = None
    for turn in range(rounds):
        order = (challenger, incumbent) if turn % 2 == 0 else (incumbent, challenger)
        for plan in order:
            trial, timelines = run_trial(bench, ledger, plan, told)
            if trial.status is Status.INTERRUPTED:
                return Duel(tuple(before), tuple(after), None, None, seen, last, interrupted=True)
            if plan is challenger and trial.figures is None:
                return Duel(tuple(before), tuple(after), None, trial, seen, last)
            if trial.figures is not None:
                (after if plan is challenger else before).append(trial.figures.throughput)
            if plan is challenger:
                seen, last = timelines, trial
        scatter = pooled(ledger.groups())
        if before and after and decide(before, after, scatter, turn == rounds - 1):
            break
    return Duel(tuple(before), tuple(after), pooled(ledger.groups()), None, seen, last)
