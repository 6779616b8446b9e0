"""The guard's runs: what the first steps compute with a plan and without, kept for the whole search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Guarded, Sameness
from hotlap.facts.witness import Witness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, close
from hotlap.measure.duel import InterruptedSearch
from hotlap.measure.ledger import key_of
from hotlap.measure.runner import Bench
from hotlap.ports.knob import Knob, Numerics

GUARD_STEPS = 24
SEEDS = (
    LEAST_SEEDS,
    5,
    8,
)  # until they decide: other batches scatter as other seeds do, of which three say little
_UNFINISHED = "a guard run did not finish"


@dataclass
class GuardRuns:
    """Asks whether a plan trains the same model. The baseline's runs are made once.

    `fits(seconds)` says whether so much more is within the budget, where an answer is not decided yet.
    """

    bench: Bench
    knobs: Mapping[str, Knob]
    note: Callable[[str], None]
    fits: Callable[[float], bool] = lambda _: True
    made: dict[tuple[str, int, str], Witness | None] = field(default_factory=dict)
    known: dict[str, Guarded] = field(default_factory=dict)  # by settings
    run_s: float = 0.0  # of the last run

    @property
    def answer_s(self) -> float:
        """What an answer on another plan takes at the least; whether more seeds follow is asked then."""
        return self._needs_s([Plan()], LEAST_SEEDS) + LEAST_SEEDS * self.run_s

    def ask(self, plan: Plan, trial: Trial | None) -> Guarded:
        """By the loosest class of its settings, as they turned out to be in its trial."""
        key = key_of(plan.settings)
        if key not in self.known:
            self.known[key] = self._judge(plan, self._loosest(plan, trial))
        return self.known[key]

    def _judge(self, plan: Plan, numerics: Numerics) -> Guarded:
        if numerics is Numerics.BITWISE:
            base = _found([self._witness(Plan(), 0), self._witness(Plan(), 0, "again")])
            other = _found([self._witness(plan, 0)])
            judged = bitwise(base, other) if base and other else None
        else:
            judged = self._by_seeds(plan, numerics)
        return judged or Guarded(Sameness.NOT_DECIDED, numerics.value, _UNFINISHED)

    def _by_seeds(self, plan: Plan, numerics: Numerics) -> Guarded | None:
        judged = None
        for seeds in SEEDS:
            if judged is not None and not self.fits(self._needs_s([Plan(), plan], seeds)):
                break
            base = _found(self._witness(Plan(), seed) for seed in range(seeds))
            other = _found(self._witness(plan, seed) for seed in range(seeds)) if base else []
            judged = close(base, other, numerics.value) if base and other else None
            if judged is None or judged.sameness is not Sameness.NOT_DECIDED:
                break
        return judged

    def _needs_s(self, plans: Sequence[Plan], seeds: int) -> float:
        """For those runs with so many seeds that were not made yet."""
        keys = [(key_of(plan.settings), seed, "") for plan in plans for seed in range(seeds)]
        return self.run_s * sum(key not in self.made for key in keys)

    def _loosest(self, plan: Plan, trial: Trial | None) -> Numerics:
        here = trial.numerics if trial is not None else {}
        classes = {Numerics(here.get(key, self.knobs[key].numerics)) for key in plan.settings}
        order = (Numerics.STATISTICAL, Numerics.ROUNDING)
        return next((each for each in order if each in classes), Numerics.BITWISE)

    def _witness(self, plan: Plan, seed: int, twin: str = "") -> Witness | None:
        key = (key_of(plan.settings), seed, twin)
        if key not in self.made:
            self.note(f"guard: {GUARD_STEPS} steps, seed {seed}")
            name = f"guard-{len(self.made) + 1}"
            began = time.monotonic()
            found, interrupted = self.bench.witness(name, plan, GUARD_STEPS, seed)
            self.run_s = time.monotonic() - began
            if interrupted:
                raise InterruptedSearch
            self.made[key] = found
        return self.made[key]


def _found(witnesses: Iterable[Witness | None]) -> list[Witness]:
    return [each for each in witnesses if each is not None]
