"""Several variants of a job in rounds, each in fresh processes, until all intervals are narrow.

The variants of a round run at once in thin slices where that is fair (see heat.py), else one after the other (A B C,
C B A, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from hotlap.facts.counting import alike
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial
from hotlap.measure.heat import SLICES_S, Heat
from hotlap.measure.runner import Attempt, Bench, disturbed
from hotlap.stats.compare import Ratio, pooled, ratio, repeated, within_rounds

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
