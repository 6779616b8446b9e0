"""Two plans in turn (A B B A ...), each in fresh processes, until the interval decides or the rounds are over."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hotlap.facts.counting import worths
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Goal, Status, Trial
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench, disturbed
from hotlap.stats.compare import Scatter, pooled

_MOST_REPEATS = 2
_ALWAYS = 4  # disturbed trials in a row: then the machine is shared, and the intervals must do
USUAL = Scatter(0.02**2, 2)
"""Quiet machines scatter by about 2 % between runs: counted as two observations, so that two runs which happen to agree
do not pass for a machine without noise, and the first round of a search can decide what is obvious. With more weight a
noisy machine would pass for a quiet one too long: `bench/false_keeps.py` prints what is then kept for nothing."""

Told = Callable[[Trial], None]


class InterruptedSearch(Exception):  # noqa: N818  # no error: the user has seen enough
    """The user wants an end: what is known by now is kept."""


@dataclass
class Duel:
    """What both brought so far, a figure of each for every round. `failed` is the challenger's trial that died, hung or
    made no step."""

    before: list[Figures] = field(default_factory=list)
    after: list[Figures] = field(default_factory=list)
    failed: Trial | None = None
    idle: bool = False  # none of the challenger's own settings could act
    seen: tuple[Timeline, ...] = ()  # of the challenger's last trial
    last: Trial | None = None
    final: bool = False  # no further round follows; whoever decides on rounds says so

    def rates(self, goal: Goal = Goal.SPEED) -> tuple[list[float], list[float]]:
        before, after = worths(goal, self.before, self.after)
        return before, after

    def ratios(self, goal: Goal = Goal.SPEED) -> list[float]:
        """The challenger over the incumbent, round by round."""
        before, after = self.rates(goal)
        return [new / old for old, new in zip(before, after, strict=True)]

    @property
    def refused(self) -> dict[str, str]:
        """Settings of the challenger that acted nowhere, and why: one loader may take what another refuses."""
        last = self.last
        return {key: last.refused[key] for key in last.refused if key not in last.stood} if last else {}

    @property
    def memory(self) -> float | None:
        """Change of the peak memory."""
        peaks = [
            [each.memory_bytes for each in side if each.memory_bytes] for side in (self.before, self.after)
        ]
        return max(peaks[1]) / max(peaks[0]) - 1.0 if all(peaks) else None


Decide = Callable[[Duel], bool]


def run_trial(
    bench: Bench, ledger: Ledger, plan: Plan, told: Told, phases: Sequence[str] = ()
) -> tuple[Trial, tuple[Timeline, ...]]:
    """A trial in the ledger; one that others have disturbed is repeated, unless they never stop."""
    busy = len(ledger.trials) >= _ALWAYS and all(map(disturbed, ledger.trials[-_ALWAYS:]))
    for _ in range(1 if busy else _MOST_REPEATS):
        trial, seen = bench.trial(ledger.next_number, plan, phases)
        if trial.status is Status.INTERRUPTED:
            raise InterruptedSearch
        ledger.add(trial)
        told(trial)
        if not disturbed(trial):
            break
    return trial, seen


def duel(
    bench: Bench,
    ledger: Ledger,
    incumbent: Plan,
    challenger: Plan,
    rounds: int,
    decide: Decide,
    told: Told,
) -> Duel:
    """`decide(duel)` says after each round whether the answer is known."""
    held = Duel()
    for turn in range(rounds):
        order = (challenger, incumbent) if turn % 2 == 0 else (incumbent, challenger)
        brought: dict[bool, Figures] = {}
        for plan in order:
            trial, timelines = run_trial(bench, ledger, plan, told)
            if plan is challenger:
                held.seen, held.last = timelines, trial
                held.failed = trial if trial.figures is None else None
                own = _differ(incumbent, challenger)
                held.idle = bool(own) and not own & set(trial.stood)
            if held.failed is not None or held.idle:
                return held
            if trial.figures is not None:
                brought[plan is challenger] = trial.figures
        if len(brought) == len(order):
            held.before.append(brought[False])
            held.after.append(brought[True])
        if decide(held):
            break
    return held


def _differ(incumbent: Plan, challenger: Plan) -> set[str]:
    """Settings of the challenger's own."""
    return {key for key, value in challenger.settings.items() if incumbent.settings.get(key) != value}


def scatter_of_rounds(ratios: Sequence[Sequence[float]]) -> Scatter:
    """Of the ratio within a round, one sequence for each duel: what the machine does to both of them is left out."""
    return pooled(ratios, Scatter(2 * USUAL.variance, USUAL.freedom))  # twice: of two runs


def scatter_of(ledger: Ledger, goal: Goal) -> Scatter:
    """Between runs of one plan, as far as this job has shown it by now."""
    return pooled(ledger.groups(goal), USUAL)
