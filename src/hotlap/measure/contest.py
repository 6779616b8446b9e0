"""Several variants of a job in turn (A B C, C B A, ...), each in fresh processes, until all intervals are narrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from hotlap.facts.counting import alike
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Status, Trial
from hotlap.measure.runner import Bench, disturbed
from hotlap.stats.compare import Ratio, pooled, ratio

CONFIDENCE = 0.99  # a job that is compared with itself must hardly ever be called faster or slower
NARROW = 0.03  # half the interval: who wants less must ask for more rounds
OF_DIFFERENCE = 0.1  # or this part of the difference: nobody needs 6.00 times told from 6.10 times
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
        scatter = pooled(list(rates.values()))
        return ratio(first, other, confidence=CONFIDENCE, scatter=scatter)

    @property
    def narrow(self) -> bool:
        ratios = [self.ratio(each.name) for each in self.variants[1:]]
        return all(each is None or _narrow(each) for each in ratios)


def _narrow(found: Ratio) -> bool:
    return (found.high - found.low) / 2 <= max(NARROW * found.value, OF_DIFFERENCE * abs(found.value - 1.0))


def contest(
    bench: Bench,
    variants: Sequence[Variant],
    rounds: int,
    told: Callable[[Variant, Trial], None],
    spent: Callable[[], bool] = lambda: False,
) -> Contest:
    """Run rounds until every interval is narrow, the rounds are over, or the budget is `spent`; two rounds at least,
    as one tells nothing of the scatter. A variant that fails is left out. The first run says what is counted."""
    held = Contest(variants)
    number, failed, counts = 0, set[str](), bench.counts
    for turn in range(rounds):
        for variant in variants if turn % 2 == 0 else reversed(variants):
            if variant.name in failed:
                continue
            number += 1
            trial = _undisturbed(replace(bench, job=variant.job, counts=counts), number, variant)
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


def _undisturbed(bench: Bench, number: int, variant: Variant) -> Trial:
    trial, _ = bench.trial(number, variant.plan)
    return bench.trial(number, variant.plan)[0] if disturbed(trial) else trial
