"""A search for a plan: baseline, diagnosis, candidates, duels, guard, and the plan that comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hotlap.diagnose.run import diagnose
from hotlap.errors import JobError
from hotlap.facts import codec
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan, Proof
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Gain, Guarded, Ruling, Sameness, Tuning, Verdict
from hotlap.facts.witness import Witness
from hotlap.judge.gain import break_even, gain_of, rule
from hotlap.judge.guard import LEAST_SEEDS, bitwise, close
from hotlap.launch import runfolder
from hotlap.measure.duel import duel, run_trial
from hotlap.measure.ledger import Ledger
from hotlap.measure.runner import Bench
from hotlap.ports.knob import Knob, Numerics
from hotlap.propose.search import Candidate, Wish, candidates
from hotlap.seams.plan_file import write_plan
from hotlap.stats.compare import pooled

TUNING = "tuning.json"
GUARD_STEPS = 24
_ROUNDS = 4  # of a duel at most
_BASELINES = 2


@dataclass(frozen=True)
class Budget:
    """Seconds or trials, whichever is given."""

    seconds: float | None = None
    trials: int | None = None


@dataclass
class Said:
    """How a search tells of its progress."""

    trial: Callable[[Trial], None]
    verdict: Callable[[Verdict], None]
    note: Callable[[str], None]


@dataclass
class Search:
    """The state of one search."""

    bench: Bench
    ledger: Ledger
    host: Host
    knobs: Mapping[str, Knob]
    wish: Wish
    budget: Budget
    said: Said
    started: float = field(default_factory=time.monotonic)
    verdicts: list[Verdict] = field(default_factory=list)
    plan: Plan = field(default_factory=Plan)
    tried: set[tuple[str, str]] = field(default_factory=set)
    seen: tuple[Timeline, ...] = ()
    base: Figures | None = None
    best: Figures | None = None
    ended: str = ""
    witnesses: dict[tuple[str, int], Witness | None] = field(default_factory=dict)

    # -- the arrow ---------------------------------------------------------------------------------------------

    def run(self) -> Tuning:
        self._baseline()
        while not self.ended:
            candidate = next(iter(self._candidates()), None)
            if candidate is None:
                self.ended = "nothing is left that promises a gain"
            elif self._spent():
                self.ended = "the budget is spent"
            else:
                self._try(candidate)
        return self._conclude()

    def _baseline(self) -> None:
        none = Plan()
        known = self.ledger.rates(none)
        for _ in range(max(1, _BASELINES - len(known))):
            trial, seen = run_trial(self.bench, self.ledger, none, self.said.trial)
            if trial.status is Status.INTERRUPTED:
                raise KeyboardInterrupt
            if trial.figures is None:
                raise JobError(
                    f"the job did not train by itself: {trial.reason}.", "run it without hotlap first"
                )
            self.base = self.best = trial.figures
            self.seen = seen
        self.bench = replace(self.bench, limit_s=max(20.0, self.ledger.trials[-1].seconds))

    def _candidates(self) -> list[Candidate]:
        diagnosis = diagnose(self.seen, self.host, self.knobs.values())
        return candidates(diagnosis, self.host, self.seen[0], self.knobs, self.plan, self.wish, self.tried)

    def _try(self, candidate: Candidate) -> None:
        key = (candidate.knob, str(candidate.setting))
        self.tried.add(key)
        challenger = Plan({**self.plan.settings, candidate.knob: candidate.setting})
        rounds = duel(self.bench, self.ledger, self.plan, challenger, _ROUNDS, _decided, self.said.trial)
        if rounds.interrupted:
            self.ended = "interrupted: the best so far is kept"
            return
        if rounds.failed is not None:
            self._rule(candidate, Ruling.DROP, None, None, _why(rounds.failed))
            return
        last = rounds.last
        if last is not None and candidate.knob in last.refused and candidate.knob not in last.stood:
            self._rule(candidate, Ruling.DROP, None, None, f"it cannot act: {last.refused[candidate.knob]}")
            return
        gain = gain_of(rounds.before, rounds.after, rounds.scatter, final=True)
        ruling, reason = rule(gain), ""
        if ruling is Ruling.KEEP and self._too_large(last):
            ruling, reason = Ruling.DROP, "it needs more memory than the limit"
        guarded = self._guard(challenger) if ruling is Ruling.KEEP else None
        if guarded is not None and guarded.sameness is not Sameness.SAME:
            ruling, reason = Ruling.DROP, f"the guard says {guarded.sameness.value}: {guarded.reason}"
        if ruling is Ruling.KEEP and last is not None:
            self._accept(challenger, candidate, gain, guarded, last, rounds.seen)
        else:
            self._rule(candidate, Ruling.DROP, gain, guarded, reason or _slower(gain))

    def _accept(
        self,
        challenger: Plan,
        candidate: Candidate,
        gain: Gain | None,
        guarded: Guarded | None,
        last: Trial,
        seen: tuple[Timeline, ...],
    ) -> None:
        paid = break_even(self.best, last.figures) if self.best and last.figures else None
        self._rule(candidate, Ruling.KEEP, gain, guarded, "", paid)
        self.plan, self.best, self.seen = challenger, last.figures, seen
        # What did not pay before may pay now: workers that were idle, a batch that waited for data.
        kept = {(key, str(value)) for key, value in challenger.settings.items()}
        self.tried = kept | {each for each in self.tried if each[0] in challenger.settings}
        self._write()

    def _rule(
        self,
        candidate: Candidate,
        ruling: Ruling,
        gain: Gain | None,
        guarded: Guarded | None,
        reason: str,
        paid: int | None = None,
    ) -> None:
        verdict = Verdict(
            candidate.knob,
            candidate.setting,
            ruling,
            gain,
            candidate.predicted,
            candidate.interval,
            self.knobs[candidate.knob].promise,
            guarded,
            reason,
            paid,
        )
        self.verdicts.append(verdict)
        self.said.verdict(verdict)

    # -- the guard ---------------------------------------------------------------------------------------------

    def _guard(self, plan: Plan) -> Guarded:
        """Of the whole plan, by the loosest class in it."""
        classes = {self.knobs[key].numerics for key in plan.settings}
        numerics = _loosest(classes)
        if numerics is Numerics.BITWISE:
            base = [self._witness(Plan(), 0, ""), self._witness(Plan(), 0, "again")]
            return _judged(bitwise, [each for each in base if each], [self._witness(plan, 0, "")])
        base = [self._witness(Plan(), seed, "") for seed in range(LEAST_SEEDS)]
        other = [self._witness(plan, seed, "") for seed in range(LEAST_SEEDS)]
        found = [each for each in base if each], [each for each in other if each]
        if not found[0] or not found[1]:
            return Guarded(Sameness.NOT_DECIDED, numerics.value, "a guard run did not finish")
        return close(*found, numerics.value)

    def _witness(self, plan: Plan, seed: int, twin: str) -> Witness | None:
        key = (f"{sorted(plan.settings.items())!s}{twin}", seed)
        if key not in self.witnesses:
            self.said.note(f"guard: {GUARD_STEPS} steps, seed {seed}")
            name = f"guard-{len(self.witnesses) + 1}"
            self.witnesses[key] = self.bench.witness(name, plan, GUARD_STEPS, seed)
        return self.witnesses[key]

    # -- the end -----------------------------------------------------------------------------------------------

    def _conclude(self) -> Tuning:
        assert self.base is not None
        gain = guarded = None
        alone: dict[str, Gain] = {}
        if self.plan.settings and not self.ended.startswith("interrupted"):
            self.said.note("the winner once more, beside the baseline")
            final = duel(self.bench, self.ledger, Plan(), self.plan, 2, _never, self.said.trial)
            gain = gain_of(final.before, final.after, final.scatter, final=True)
            guarded = self._guard(self.plan)
            alone = self._alone()
        proof = (
            Proof(gain.value, gain.interval, guarded.sameness.value, self.host.named)
            if gain and guarded
            else None
        )
        plan = replace(self.plan, proof=proof)
        tuning = Tuning(
            self.base,
            self.best,
            plan,
            gain,
            guarded,
            tuple(self.verdicts),
            alone,
            len(self.ledger.trials),
            time.monotonic() - self.started,
            self.ended,
        )
        self._write(tuning)
        return tuning

    def _alone(self) -> dict[str, Gain]:
        """Each accepted setting by itself, where there are several and the budget allows it."""
        found: dict[str, Gain] = {}
        if len(self.plan.settings) < 2:
            return found
        for key, value in self.plan.settings.items():
            if self._spent():
                break
            plan = Plan({key: value})
            if not self.ledger.rates(plan):
                run_trial(self.bench, self.ledger, plan, self.said.trial)
            rates = self.ledger.rates(plan), self.ledger.rates(Plan())
            gain = gain_of(rates[1], rates[0], pooled(self.ledger.groups()), final=True)
            if gain is not None:
                found[key] = gain
        return found

    def _write(self, tuning: Tuning | None = None) -> None:
        write_plan(self.bench.folder / runfolder.PLAN, tuning.plan if tuning else self.plan)
        if tuning is not None:
            codec.write_json(self.bench.folder / TUNING, tuning)

    def _spent(self) -> bool:
        if self.budget.trials is not None and len(self.ledger.trials) >= self.budget.trials:
            return True
        return self.budget.seconds is not None and time.monotonic() - self.started >= self.budget.seconds

    def _too_large(self, trial: Trial | None) -> bool:
        used = trial.figures.memory_bytes if trial is not None and trial.figures else None
        return bool(self.wish.memory_limit and used and used > self.wish.memory_limit)


def _decided(before: Sequence[float], after: Sequence[float], scatter: Any, final: bool) -> bool:
    return rule(gain_of(before, after, scatter, final=final)) is not Ruling.UNDECIDED


def _never(*_: Any) -> bool:
    return False


def _loosest(classes: set[Numerics]) -> Numerics:
    order = (Numerics.STATISTICAL, Numerics.ROUNDING, Numerics.BITWISE)
    return next((each for each in order if each in classes), Numerics.BITWISE)


def _judged(judge: Callable[..., Guarded], base: list[Witness], plan: list[Witness | None]) -> Guarded:
    found = [each for each in plan if each is not None]
    if not base or not found:
        return Guarded(Sameness.NOT_DECIDED, "bitwise", "a guard run did not finish")
    return judge(base, found)


def _why(trial: Trial) -> str:
    word = {Status.DEAD: "the job died", Status.HUNG: "the job hung"}.get(
        trial.status, "no steady step was made"
    )
    return f"{word}: {trial.reason}"


def _slower(gain: Gain | None) -> str:
    if gain is None:
        return "it was not measured often enough"
    if gain.interval.high < 0:
        return "it is slower"
    return "it brings less than 3 %" if gain.interval.high < 0.03 else "the gain cannot be told from noise"
