"""The guard's runs: what the first steps compute with a plan and without, kept for the whole search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Guarded, Sameness
from hotlap.facts.witness import Witness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, close, so_far, untrained
from hotlap.measure.duel import InterruptedSearch
from hotlap.measure.ledger import Answered, Ledger, key_of
from hotlap.measure.runner import Bench
from hotlap.ports.knob import Knob, Numerics

GUARD_STEPS = 24
SEEDS = (LEAST_SEEDS, 5, 8, 12)
"""Until they decide: other batches scatter as other seeds do, of which three say little. `bench/guard_power.py` prints
how often so many decide."""
_USUAL_SEEDS = {Numerics.ROUNDING: LEAST_SEEDS, Numerics.STATISTICAL: 8}  # that decide most plans
_UNFINISHED = "a guard run did not finish"


@dataclass
class GuardRuns:
    """Asks whether a plan trains the same model. The baseline's runs are made once.

    `fits(seconds)` says whether so much more is within the budget, where an answer is not decided yet.
    """

    bench: Bench
    ledger: Ledger
    knobs: Mapping[str, Knob]
    note: Callable[[str], None]
    fits: Callable[[float], bool] = lambda _: True
    made: dict[tuple[str, int, str], Witness | None] = field(default_factory=dict)
    run_s: float = 0.0  # of the longest run
    guess_s: float = 0.0  # of a run, before there was one

    def answer_s(self, plan: Plan, trial: Trial | None, *, at_most: bool = False) -> float:
        """What the answer on a plan takes that is not known yet, as far as can be told: most plans of its class are
        decided by so many seeds; `at_most`, where all of them are needed."""
        if self.known(plan) is not None:
            return 0.0
        numerics = self.numerics_of(plan, trial)
        if numerics is Numerics.BITWISE:
            return self._needs_s([plan], 1) + self._needs_s([Plan()], 1) + self._run_s
        seeds = SEEDS[-1] if at_most else _USUAL_SEEDS[numerics]
        return self._needs_s([Plan()], seeds) + seeds * self._run_s

    @property
    def _run_s(self) -> float:
        return self.run_s or self.guess_s

    def look(self, plan: Plan, trial: Trial | None) -> Guarded:
        """Before a search goes on from a plan: bits decide; of what is looser one seed may show no fault. Where it
        raises doubts, the answer is asked for at once."""
        numerics, known = self.numerics_of(plan, trial), self.known(plan)
        if numerics is Numerics.BITWISE or known is not None:
            return known or self.ask(plan, trial)
        base = self._witness(Plan(), 0)
        other = self._witness(plan, 0, base=base) if base else None
        if base is None or other is None:
            return Guarded(Sameness.NOT_DECIDED, numerics.value, _UNFINISHED)
        found = so_far(base, other, numerics.value)
        return found if found.sameness is not Sameness.NOT_DECIDED else self.ask(plan, trial)

    def ask(self, plan: Plan, trial: Trial | None) -> Guarded:
        """By the loosest class of its settings, as they turned out to be in its trial. What is decided stays so."""
        known = self.known(plan)
        if known is not None:
            return known
        found = self._judge(plan, self.numerics_of(plan, trial))
        if found.sameness is not Sameness.NOT_DECIDED:
            self.ledger.answer(Answered(plan.settings, found))
        return found

    def numerics_of(self, plan: Plan, trial: Trial | None) -> Numerics:
        """The loosest class of its settings."""
        here = trial.numerics if trial is not None else {}
        classes = {Numerics(here.get(key, self.knobs[key].numerics)) for key in plan.settings}
        order = (Numerics.STATISTICAL, Numerics.ROUNDING)
        return next((each for each in order if each in classes), Numerics.BITWISE)

    def known(self, plan: Plan) -> Guarded | None:
        """What it has said for sure, in an earlier search too."""
        key = key_of(plan.settings)
        return next((each.guard for each in self.ledger.answered if key_of(each.settings) == key), None)

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
            other = _found(self._witness(plan, each.seed, base=each) for each in base)
            judged = close(base, other, numerics.value) if base and other else None
            if judged is None or judged.sameness is not Sameness.NOT_DECIDED or untrained(base, other):
                break
        return judged

    def _needs_s(self, plans: Sequence[Plan], seeds: int) -> float:
        """For those runs with so many seeds that were not made yet."""
        keys = [(key_of(plan.settings), seed, "") for plan in plans for seed in range(seeds)]
        return self._run_s * sum(key not in self.made for key in keys)

    def _witness(
        self, plan: Plan, seed: int, twin: str = "", *, base: Witness | None = None
    ) -> Witness | None:
        """Beside the `base` only what has seen as many samples is held against it: larger batches need fewer steps."""
        key = (key_of(plan.settings), seed, twin)
        if key not in self.made:
            self.note(f"guard: {GUARD_STEPS} steps, seed {seed}")
            name = f"guard-{len(self.made) + 1}"
            samples = base.samples[-1] if base is not None and base.samples else 0
            began = time.monotonic()
            found, interrupted = self.bench.witness(name, plan, GUARD_STEPS, seed, samples)
            self.run_s = max(self.run_s, time.monotonic() - began)
            if interrupted:
                raise InterruptedSearch
            self.made[key] = found
        return self.made[key]


def _found(witnesses: Iterable[Witness | None]) -> list[Witness]:
    return [each for each in witnesses if each is not None]
