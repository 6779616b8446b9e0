"""Several variants of a job in rounds, each in fresh processes, until all intervals are narrow.

The variants of a round run at once in thin slices where that is fair (see heat.py), else one after the other (A B C,
C B A, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Goal, Status, Trial, alike, worths
from hotlap.measure.interleaved_round import SLICES_S, Heat
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Attempt, Bench, Lead, disturbed
from hotlap.stats.compare import Ratio, Scatter, pooled, ratio, repeated, within_rounds

CONFIDENCE = 0.99  # a job that is compared with itself must hardly ever be called faster or slower
LEAST_ROUNDS = 4


@dataclass(frozen=True)
class Variant:
    """A job under a plan, by the name that the user gave it."""

    name: str
    job: Job
    plan: Plan


@dataclass
class Contest:
    """The trials of each variant by name; the first variant is what the others are compared with."""

    variants: Sequence[Variant]
    trials: dict[str, list[Trial]] = field(default_factory=dict)
    interrupted: bool = False
    sliced: bool = False  # the variants of a round ran at once, in slices
    obstacle: str = ""  # why they did not, although that was asked for

    @property
    def told(self) -> dict[str, list[Trial]]:
        """The trials with all throughputs in one count."""
        one_job = len({each.job for each in self.variants}) == 1
        groups = [[each.figures for each in trials if each.figures] for trials in self.trials.values()]
        counted = iter([each for group in alike(*groups, one_job=one_job) for each in group])
        return {
            name: [replace(each, figures=next(counted)) if each.figures else each for each in trials]
            for name, trials in self.trials.items()
        }

    def rates(self, name: str) -> list[float]:
        return self._rates().get(name, [])

    def _rates(self) -> dict[str, list[float]]:
        return {
            name: [each.figures.throughput for each in trials if each.status is Status.DONE and each.figures]
            for name, trials in self.told.items()
        }

    def ratio(self, name: str) -> Ratio | None:
        """Against the first variant; None where one of them did not run twice."""
        rates = self._rates()
        first, other = rates.get(self.variants[0].name, []), rates.get(name, [])
        if min(len(first), len(other)) < 2:
            return None
        if self.sliced:
            return _paired(first, other, list(rates.values()))
        scatter = pooled(list(rates.values()))
        return ratio(first, other, confidence=CONFIDENCE, scatter=scatter)

    @property
    def narrow(self) -> bool:
        ratios = [self.ratio(each.name) for each in self.variants[1:]]
        return all(each is None or each.narrow for each in ratios)


def _paired(first: list[float], other: list[float], groups: list[list[float]]) -> Ratio | None:
    """Rounds are the pairs. Variants that failed early say nothing of the scatter."""
    scatter = within_rounds([each for each in groups if len(each) >= min(len(first), len(other))])
    ratios = [after / before for before, after in zip(first, other, strict=False)]
    return repeated(ratios, scatter, CONFIDENCE) if scatter else None


def contest(
    bench: Bench,
    variants: Sequence[Variant],
    rounds: int,
    told: Callable[[Variant, Trial], None],
    spent: Callable[[], bool] = lambda: False,
    *,
    sliced: bool = False,
) -> Contest:
    """Run rounds until every interval is narrow, the rounds are over, or the budget is `spent`; two rounds at least,
    as one tells nothing of the scatter. A variant that fails is left out. The first run says what is counted.

    With `sliced` the variants of a round run at once where they can.
    """
    held = Contest(variants, sliced=sliced)
    failed, counts = set[str](), bench.counts
    for turn in range(rounds):
        order = [each for each in (variants if turn % 2 == 0 else variants[::-1]) if each.name not in failed]
        for variant, trial in _round(replace(bench, counts=counts), order, held, turn):
            if trial.status is Status.INTERRUPTED:
                held.interrupted = True
                return held
            held.trials.setdefault(variant.name, []).append(trial)
            told(variant, trial)
            if trial.figures is None:
                failed.add(variant.name)
            elif not counts:
                counts = trial.figures.counts
        narrow = turn + 1 >= LEAST_ROUNDS and held.narrow
        if variants[0].name in failed or narrow or (turn > 0 and spent()):
            break
    return held


Round = Iterator[tuple[Variant, Trial]]


def _round(bench: Bench, order: Sequence[Variant], held: Contest, turn: int) -> Round:
    """The first round in slices shows whether there can be any: else all run one after the other from the start."""
    first = turn * len(held.variants) + 1
    if held.sliced and len(order) > 1:
        heat = Heat(bench.signals)
        starts = [_start(replace(bench, job=each.job), at, each.plan) for at, each in enumerate(order, first)]
        trials = heat.run(starts, careful=turn == 0)
        if not heat.obstacle:
            return zip(order, trials, strict=False)
        held.sliced, held.obstacle = False, heat.obstacle
    return _one_by_one(bench, order, first)


def _start(bench: Bench, number: int, plan: Plan) -> Callable[[], Attempt]:
    return lambda: bench.begin(number, plan, least_s=SLICES_S)


def _one_by_one(bench: Bench, order: Sequence[Variant], first: int) -> Round:
    counts = bench.counts
    for number, variant in enumerate(order, first):
        trial = _undisturbed(replace(bench, job=variant.job, counts=counts), number, variant)
        counts = counts or (trial.figures.counts if trial.figures else "")
        yield variant, trial


def _undisturbed(bench: Bench, number: int, variant: Variant) -> Trial:
    trial, _ = bench.trial(number, variant.plan)
    return bench.trial(number, variant.plan)[0] if disturbed(trial) else trial


# Two plans in turn (A B B A ...), each in fresh processes, until the interval decides or the rounds are over.


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
    bench: Bench,
    ledger: Ledger,
    plan: Plan,
    told: Told,
    phases: Sequence[str] = (),
    lead: Lead | None = None,
) -> tuple[Trial, tuple[Timeline, ...]]:
    """A trial in the ledger; one that others have disturbed is repeated, unless they never stop, or it was made for
    its experiments."""
    busy = len(ledger.trials) >= _ALWAYS and all(map(disturbed, ledger.trials[-_ALWAYS:]))
    for _ in range(1 if busy or lead else _MOST_REPEATS):
        trial, seen = bench.trial(ledger.next_number, plan, phases, lead)
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
