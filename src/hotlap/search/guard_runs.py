"""The guard's runs: what the first steps compute with a plan and without, kept for the whole search."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import is_rewrite
from hotlap.facts.trial import Trial
from hotlap.facts.verdict import Guarded, Sameness, Witness
from hotlap.judge.guard import LEAST_SEEDS, bitwise, close, rewritten, so_far, unlike_at_first, untrained
from hotlap.launch.environment import PUT
from hotlap.measure.contest import InterruptedSearch
from hotlap.measure.ledger import Answered, Ledger, key_of
from hotlap.measure.runner import Bench
from hotlap.ports.knob import UNCHANGED, Knob, Numerics

GUARD_STEPS = 24
EPOCH_STEPS = 12
"""After which an epoch is cut short in a guard run: what a setting hides between two epochs must show in it."""
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
    asked: set[tuple[str, int, str]] = field(default_factory=set)  # those that met reference batches
    run_s: float = 0.0  # of the longest run
    guess_s: float = 0.0  # of a run, before there was one
    epoch_steps: int = EPOCH_STEPS  # 0 where the job does not get far in epochs that are cut short

    def answer_s(self, plan: Plan, trial: Trial | None, *, at_most: bool = False) -> float:
        """What the answer on a plan takes that is not known yet, as far as can be told: most plans of its class are
        decided by so many seeds; `at_most`, where all of them are needed."""
        if self.known(plan) is not None:
            return 0.0
        numerics = self.numerics_of(plan, trial)
        if numerics in UNCHANGED:
            return self._needs_s([plan], 1) + self._needs_s([Plan()], 1) + self._run_s
        seeds = SEEDS[-1] if at_most else _USUAL_SEEDS[numerics]
        return self._needs_s([Plan()], seeds) + seeds * self._run_s

    @property
    def _run_s(self) -> float:
        return self.run_s or self.guess_s

    def look(self, plan: Plan, trial: Trial | None) -> Guarded:
        """Before a search goes on from a plan: bits decide; of what is looser one seed may show no fault. Where it
        raises doubts, the answer is asked for at once."""
        wrong = self._wrong_rewrites(plan)
        if wrong is not None:
            return wrong
        numerics, known = self.numerics_of(plan, trial), self.known(plan)
        if numerics in UNCHANGED or known is not None:
            return known or self.ask(plan, trial)
        asked = numerics is Numerics.STATISTICAL
        base = self._witness(Plan(), 0, asked=asked)
        other = self._witness(plan, 0, base=base, asked=asked) if base else None
        if base is None or other is None:
            return Guarded(Sameness.NOT_DECIDED, numerics.value, _UNFINISHED)
        if self._only_rewrites(plan, numerics) and (unlike := unlike_at_first([base], [other])):
            return Guarded(Sameness.DIFFERENT, numerics.value, unlike, other.steps, 1)
        found = so_far(base, other, numerics.value)
        return found if found.sameness is not Sameness.NOT_DECIDED else self.ask(plan, trial)

    def ask(self, plan: Plan, trial: Trial | None) -> Guarded:
        """By the loosest class of its settings, as they turned out to be in its trial. What is decided stays so."""
        known = self.known(plan) or self._wrong_rewrites(plan)
        if known is not None:
            return known
        found = self._judge(plan, self.numerics_of(plan, trial))
        if found.sameness is not Sameness.NOT_DECIDED:
            self.ledger.answer(Answered(plan.settings, found))
        return found

    def _wrong_rewrites(self, plan: Plan) -> Guarded | None:
        """What other settings do to the numbers would hide a wrong rewrite: rewrites are asked about alone."""
        own = {key: setting for key, setting in plan.settings.items() if is_rewrite(key)}
        if not own or len(own) == len(plan.settings):
            return None
        found = self.ask(Plan(own), None)
        return found if found.sameness is Sameness.DIFFERENT else None

    def _only_rewrites(self, plan: Plan, numerics: Numerics) -> bool:
        return numerics is Numerics.ROUNDING and all(map(is_rewrite, plan.settings))

    def numerics_of(self, plan: Plan, trial: Trial | None) -> Numerics:
        """The loosest class of its settings."""
        here = trial.numerics if trial is not None else {}
        classes = {Numerics(here.get(key, self.knobs[key].numerics)) for key in plan.settings}
        return max(classes, key=list(Numerics).index, default=Numerics.BITWISE)

    def known(self, plan: Plan) -> Guarded | None:
        """What it has said for sure, in an earlier search too."""
        key = key_of(plan.settings)
        return next((each.guard for each in self.ledger.answered if key_of(each.settings) == key), None)

    def _judge(self, plan: Plan, numerics: Numerics) -> Guarded:
        if numerics in UNCHANGED:
            base = _found([self._witness(Plan(), 0), self._witness(Plan(), 0, "again")])
            other = _found([self._witness(plan, 0)])
            judged = bitwise(base, other, numerics.value) if base and other else None
        else:
            judged = self._by_seeds(plan, numerics)
        return judged or Guarded(Sameness.NOT_DECIDED, numerics.value, _UNFINISHED)

    def _by_seeds(self, plan: Plan, numerics: Numerics) -> Guarded | None:
        judged, asked = None, numerics is Numerics.STATISTICAL
        for seeds in SEEDS:
            if judged is not None and not self.fits(self._needs_s([Plan(), plan], seeds)):
                break
            base = _found(self._witness(Plan(), seed, asked=asked) for seed in range(seeds))
            other = _found(self._witness(plan, each.seed, base=each, asked=asked) for each in base)
            by = rewritten if self._only_rewrites(plan, numerics) else close
            judged = by(base, other, numerics.value) if base and other else None
            if judged is None or judged.sameness is not Sameness.NOT_DECIDED or untrained(base, other):
                break
        return judged

    def _needs_s(self, plans: Sequence[Plan], seeds: int) -> float:
        """For those runs with so many seeds that were not made yet."""
        keys = [(key_of(plan.settings), seed, "") for plan in plans for seed in range(seeds)]
        return self._run_s * sum(key not in self.made for key in keys)

    def _witness(
        self, plan: Plan, seed: int, twin: str = "", *, base: Witness | None = None, asked: bool = False
    ) -> Witness | None:
        """Beside the `base` only what has seen as many samples is held against it: larger batches need fewer steps.
        `asked`: about reference batches in the end. A run that was serves those who do not need it too."""
        key = (key_of(plan.settings), seed, twin)
        if key not in self.made or (asked and key not in self.asked):
            self.note(f"guard: {GUARD_STEPS} steps, seed {seed}")
            name = f"guard-{len(self.made) + 1}"
            samples = base.samples[-1] if base is not None and base.samples else 0
            began = time.monotonic()
            run = partial(self._run, name, plan, seed, samples, asked=asked)
            found, interrupted = run()
            if found is None and not interrupted and self.epoch_steps and not any(self.made.values()):
                self.epoch_steps = 0  # a job of one epoch, or one that counts the batches of an epoch itself
                found, interrupted = run()
            self.run_s = max(self.run_s, time.monotonic() - began)
            if interrupted:
                raise InterruptedSearch
            self.made[key] = found
            self.asked |= {key} if asked else set()
        return self.made[key]

    def _run(
        self, name: str, plan: Plan, seed: int, samples: int, *, asked: bool
    ) -> tuple[Witness | None, bool]:
        """The run of the original script puts the reference batches of its seed aside."""
        path = self._reference / str(seed)
        reference = f"{path}" if plan.settings else f"{PUT}{path}"
        reference = reference if asked else ""
        return self.bench.witness(name, plan, GUARD_STEPS, seed, samples, self.epoch_steps, reference)

    @property
    def _reference(self) -> Path:
        return self.bench.folder / "reference"

    def close(self) -> None:
        """Reference batches are not kept: they are as large as the job's data may be."""
        shutil.rmtree(self._reference, ignore_errors=True)


def _found(witnesses: Iterable[Witness | None]) -> list[Witness]:
    return [each for each in witnesses if each is not None]
