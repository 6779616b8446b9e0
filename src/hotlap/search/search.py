"""The state of a search for a plan: what it knows, tries in fresh processes, rules on, and what its budget allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from hotlap.errors import JobError
from hotlap.experiments.leads import Knobs, Lead, rewrite_knobs
from hotlap.facts.experiment import Experiment
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Goal, Status, Trial
from hotlap.facts.verdict import PASSING, Gain, Guarded, KnobVerdict, Ruling
from hotlap.judge.gain import (
    LEAST,
    MOST_ROUNDS,
    ROUNDS,
    beside_blocks,
    break_even,
    enough,
    gain_of,
    gain_of_rounds,
    rule,
    rule_simpler,
)
from hotlap.launch import runfolder
from hotlap.measure.contest import Duel, duel, run_trial, scatter_of, scatter_of_rounds
from hotlap.measure.ledger import Ledger, Ruled
from hotlap.measure.runner import AS_LONG, Bench
from hotlap.plan.file import write_plan
from hotlap.ports.knob import Knob
from hotlap.search.candidates import (
    AGAIN,
    NO_TIME,
    Candidate,
    Key,
    Said,
    SearchBudget,
    Wish,
    cannot_act,
    composed,
    not_worth,
    simpler,
    slower,
    the_guard_says,
    together,
    why,
)
from hotlap.search.guard_runs import GUARD_STEPS, GuardRuns

_PHASES = ("ops",)  # after the window: which operators there are decides what knobs have to offer
_ROUND = 2  # trials of a duel at the least
_GRACE = 0.1  # of the budget, by which an answer of the guard may exceed it: without one all that was found is lost
LEAST_PROOF_ROUNDS = 2
CONCLUSION = 2 * LEAST_PROOF_ROUNDS  # trials that the proof of a plan takes


@dataclass
class Shown:
    """What experiments have shown beside one plan; without a plan there were none yet.

    `gains` are of the winners, and of what seems to win and is not sure. `free` is the gain of free input, the most
    that any change of the input can bring. `cut_short`: some took no turn, and another pass may have time for them.
    `unsure`: measured too loosely to say anything, which another pass may do.
    """

    plan: Plan | None = None
    gains: dict[Key, Gain] = field(default_factory=dict)
    winners: list[Candidate] = field(default_factory=list)
    refused: dict[Key, str] = field(default_factory=dict)
    free: float | None = None
    cut_short: bool = False
    unsure: list[Experiment] = field(default_factory=list)
    apart: bool = False  # together they did not hold


class Search:
    """The state of one search."""

    def __init__(
        self,
        bench: Bench,
        ledger: Ledger,
        host: Host,
        knobs: Mapping[str, Knob],
        wish: Wish,
        budget: SearchBudget,
        said: Said,
    ) -> None:
        self.bench, self.ledger, self.host, self.knobs = bench, ledger, host, Knobs(knobs)
        self.wish, self.goal, self.budget, self.said = wish, Goal(wish.goal), budget, said
        self.started = time.monotonic()
        self.verdicts: list[KnobVerdict] = []
        self.plan = Plan()
        self.tried = Tried()
        self.shown = Shown()
        self.duels: list[Duel] = []  # how much rounds scatter is told by all of them
        self.begun = False  # the first candidates are tried in any case: else a search says nothing
        self.in_a_group: set[str] = set()  # knobs that were kept together with others
        grace_s = _GRACE * (budget.seconds or 0.0)
        self.guard = GuardRuns(
            bench, ledger, self.knobs, said.note, lambda more_s: self.in_time(CONCLUSION, more_s - grace_s)
        )
        self.accepted_at = 0  # number of the last trial before the plan stood
        self.base: Figures | None = None
        self.best: Trial | None = None
        self.seen: tuple[Timeline, ...] = ()
        self.ended = ""
        self.answers: dict[str, dict[str, Any]] | None = None  # by knob, whether it can act on this job
        self._trials_before = len(ledger.trials)

    def stand(self, plan: Plan, lead: Lead | None = None) -> None:
        """A trial of the incumbent, whose timeline says what to try next."""
        trial, seen = run_trial(self.bench, self.ledger, plan, self.said.trial, _PHASES, lead)
        if trial.figures is None:
            by_itself = "by itself" if not plan.settings else "under the plan of the last search"
            raise JobError(
                f"the job did not train {by_itself}: {trial.reason}.", "run it without hotlap first"
            )
        self.best, self.seen = trial, seen
        self.knobs.update(rewrite_knobs(seen))

    def guard_can_tell(self, batch: int) -> bool:
        """Whether runs of the guard, which see as many samples as the script's own, make more than one step."""
        first = self.base or (self.best.figures if self.best else None)
        of_script = first.samples_per_step if first else None
        return of_script is None or 2 * batch <= GUARD_STEPS * of_script

    # -- one candidate -----------------------------------------------------------------------------------------

    def try_one(self, candidate: Candidate) -> None:
        self.tried.begin(candidate.key, candidate.bound)
        challenger = composed(self.plan, candidate, self.knobs)
        judge, par = (rule_simpler, -LEAST) if simpler(candidate, self.plan, self.knobs) else (rule, 0.0)
        shown = self.shown.gains.get(candidate.key) if self.shown.plan == self.plan else None
        held = self.duel(self.plan, challenger, judge=judge, par=par, shown=shown)
        cannot = self._cannot(candidate, held)
        if cannot:
            self.declare(candidate, Ruling.DROP, None, None, cannot)
            return
        challenger = _acting(challenger, candidate, held)
        gain, speed = (beside_blocks(self.gain(held, goal), shown) for goal in (self.goal, Goal.SPEED))
        ruling, reason, guarded = judge(gain), "", None
        if ruling is Ruling.KEEP and self.too_large(held.last):
            ruling, reason = Ruling.DROP, "it needs more memory than the limit"
        if ruling is Ruling.KEEP:
            guarded = self.guard.look(challenger, held.last)
            if guarded.sameness not in PASSING:
                ruling, reason = Ruling.DROP, the_guard_says(guarded)
        if ruling is Ruling.KEEP:
            self._accept(challenger, candidate, speed, guarded, held)
        else:
            if not reason:
                self.tried.miss(candidate.key, gain)
            reason = reason or (slower(speed) if self.goal is Goal.SPEED else not_worth(held, speed))
            self.declare(candidate, Ruling.DROP, speed, guarded, reason, memory=held.memory)

    def duel(
        self,
        before: Plan,
        after: Plan,
        *,
        rounds: int | None = None,
        judge: Callable[[Gain | None], Ruling] = rule,
        least: int = 1,
        then: int | None = None,
        par: float = 0.0,
        shown: Gain | None = None,
    ) -> Duel:
        """`least` rounds in any case, and no more than leave room for the trials that come `then`, or for the guard and
        the proof of what is kept. Where no number is given, as many as the gain seems to be worth, by what blocks of
        steps have `shown` as well."""

        def decided(held: Duel) -> bool:
            made = len(held.after)
            seems = beside_blocks(self.gain(held), shown)
            over = enough(made, seems, par) if rounds is None else made >= rounds
            over = over or (rounds is None and made >= ROUNDS and self._others_wait(after))
            held.final = over and made <= (rounds or ROUNDS)
            room = self.fits_if_kept(0.0, after) if then is None else self.fits(_ROUND + then)
            ruling = judge(beside_blocks(self.gain(held), shown))
            return (over or ruling is not Ruling.UNDECIDED or not room) and made >= least

        most = rounds or MOST_ROUNDS
        bench = replace(self.bench, limit_s=self.limit_s)
        self.duels.append(duel(bench, self.ledger, before, after, most, decided, self.said.trial))
        return self.duels[-1]

    def _others_wait(self, plan: Plan) -> bool:
        """More than the usual rounds are for what is tried last: a sure winner is worth more than one in doubt."""
        others = [each for each in self.shown.winners if plan.settings.get(each.knob) != each.setting]
        return any(not self.tried.rules_out(each) for each in others)

    def gain(self, held: Duel, goal: Goal | None = None) -> Gain | None:
        """By the ratios within rounds where there are two of them; before that by what runs of one plan scatter."""
        aim = goal or self.goal
        ratios = held.ratios(aim)
        if len(ratios) < 2:
            return gain_of(*held.rates(aim), scatter_of(self.ledger, aim), final=held.final)
        others = [each.ratios(aim) for each in self.duels if each is not held]
        return gain_of_rounds(ratios, scatter_of_rounds([*others, ratios]), final=held.final)

    def _cannot(self, candidate: Candidate, held: Duel) -> str:
        if held.failed is not None:
            return why(held.failed)
        if held.idle or candidate.knob in held.refused:  # what it brought may act: that is not its own gain
            return cannot_act(held.refused.get(candidate.knob, "nothing asked for it"))
        return ""

    def _accept(
        self, plan: Plan, candidate: Candidate, gain: Gain | None, guarded: Guarded | None, held: Duel
    ) -> None:
        paid = self.paid_back(plan, held)
        self.stand_on(plan, held)
        self.declare(candidate, Ruling.KEEP, gain, guarded, "", paid=paid, memory=held.memory)

    def paid_back(self, plan: Plan, held: Duel) -> int | None:
        """Steps until compiling is paid back, where the plan compiles anything."""
        before = self.best.figures if self.best else None
        after = held.last.figures if held.last else None
        return break_even(before, after, self.ledger.compile_s(plan)) if before and after else None

    def stand_on(self, plan: Plan, held: Duel) -> None:
        """The plan is the incumbent from now on."""
        self.plan, self.best, self.seen = plan, held.last, _with_operators(held.seen, self.seen)
        self.accepted_at = max(trial.number for trial in self.ledger.trials)
        self.tried.advance(self.gain(held))
        self.shown = Shown()
        self.write_plan()

    def write_plan(self) -> None:
        """The best so far, without a proof: a kill leaves it there."""
        write_plan(self.bench.folder / runfolder.PLAN, self.plan)

    def drop_live(self, candidate: Candidate, gain: Gain, reason: str = "") -> None:
        """What an experiment has shown to bring too little, or what may not be kept for another reason."""
        self.tried.begin(candidate.key, candidate.bound)
        if not reason:
            self.tried.miss(candidate.key, gain)
        self.declare(candidate, Ruling.DROP, gain, None, reason or slower(gain), live=True)

    def declare(
        self,
        candidate: Candidate,
        ruling: Ruling,
        gain: Gain | None,
        guarded: Guarded | None,
        reason: str,
        **more: Any,
    ) -> None:
        verdict = KnobVerdict(
            candidate.knob,
            candidate.setting,
            ruling,
            gain,
            self.knobs[candidate.knob].promise,
            guarded,
            reason,
            more.get("paid"),
            more.get("memory"),
            candidate.beside,
            more.get("live", False),
            candidate.bound,
        )
        self.verdicts.append(verdict)
        if more.get("lasts", reason != NO_TIME):  # a search that goes on from the ledger has more time
            self.ledger.rule(Ruled(self.wish.words, verdict, self.plan.settings))
        self.said.verdict(verdict)

    def accepted(self) -> list[dict[str, Any]]:
        """The plan's settings, each after those that came with it, as the learning rate's with the batch."""
        settings = self.plan.settings
        beside = {each.knob: each.beside for each in self.verdicts if each.ruling is Ruling.KEEP}
        led = {other for key in settings for other in beside.get(key, ())}
        return [
            {other: settings[other] for other in (*beside.get(key, ()), key) if other in settings}
            for key in settings
            if key not in led
        ]

    # -- bounds ------------------------------------------------------------------------------------------------

    def affordable(self, group: Sequence[Candidate]) -> bool:
        return not self.begun or self.fits(*self.needs(group))

    def needs(self, group: Sequence[Candidate]) -> tuple[int, float]:
        """Trials, and seconds beside them, that it takes to try a group and to prove the plan that holds it."""
        plan = together(self.plan, group, self.knobs)
        builds_s = sum(self.knobs[each.knob].builds_s for each in group)
        return _ROUND + CONCLUSION, self.guard.answer_s(plan, self.best) + builds_s

    def fits_if_kept(self, more_s: float, plan: Plan | None = None, *, trials: int = 0) -> bool:
        """Whether these seconds and trials, a round, and what follows where the plan is kept are within the budget."""
        answer_s = self.guard.answer_s(plan or self.plan, self.best)
        return self.fits(trials + _ROUND + CONCLUSION, answer_s + more_s)

    def spare_s(self, trials: int) -> float:
        """Seconds that are left of the budget for so many trials and what follows where the plan is kept."""
        needed = (trials + _ROUND + CONCLUSION) * self.trial_s + self.guard.answer_s(self.plan, self.best)
        return self.left_s - needed

    @property
    def left_s(self) -> float:
        """Of a budget in seconds."""
        return (self.budget.seconds or 0.0) - (time.monotonic() - self.started)

    def spares(self, trials: int) -> bool:
        """Whether so many trials that only make a plan simpler are within the budget, with the longest answer on it."""
        answer_s = self.guard.answer_s(self.plan, self.best, at_most=True)
        return self.fits(trials + CONCLUSION, answer_s)

    def fits(self, trials: int, guard_s: float = 0.0) -> bool:
        """Whether so many trials more, and so many seconds of the guard, are within the budget."""
        counted = self.budget.trials is None or trials <= self.left_trials
        return counted and self.in_time(trials, guard_s)

    def in_time(self, trials: int, guard_s: float) -> bool:
        """The same of a budget in seconds: runs of the guard are no trials."""
        return self.budget.seconds is None or trials * self.trial_s + guard_s <= self.left_s

    @property
    def limit_s(self) -> float | None:
        """Of a trial, before it counts as hung after AS_LONG times that: it may not outlast the budget by much."""
        usual = self.bench.limit_s
        if usual is None or self.budget.seconds is None:
            return usual
        return min(usual, max(self.left_s, 2 * self.trial_s) / AS_LONG)

    @property
    def left_trials(self) -> int:
        """Of a budget in trials."""
        return (self.budget.trials or 0) - (len(self.ledger.trials) - self._trials_before)

    @property
    def trial_s(self) -> float:
        """Of a usual trial: some have phases after their window."""
        return median([each.seconds for each in self.ledger.trials if each.status is Status.DONE] or [0.0])

    def too_large(self, trial: Trial | None) -> bool:
        used = trial.figures.memory_bytes if trial is not None and trial.figures else None
        return bool(self.wish.memory_limit and used and used > self.wish.memory_limit)


def _with_operators(seen: tuple[Timeline, ...], before: tuple[Timeline, ...]) -> tuple[Timeline, ...]:
    """Nobody looked again: a setting changes how operators run more than which there are."""
    return tuple(replace(each, ops=each.ops or before[0].ops) for each in seen)


def _acting(plan: Plan, candidate: Candidate, held: Duel) -> Plan:
    """Without what only came along with the candidate, and could not act."""
    idle = held.refused.keys() & candidate.beside.keys()
    return Plan({key: value for key, value in plan.settings.items() if key not in idle}) if idle else plan


# What a search has tried, and what deserves another try: beside another incumbent it may bring something else.


AFRESH = 1.1
"""Times as fast as when a setting brought too little: then another bottleneck stands. A larger batch cost nest what it
saved, until its memory stayed where it was."""

FAR_BEHIND = 0.1
"""The same batch was behind by 5 % once, surely, beside single precision: less than what turned it round later."""


@dataclass
class Tried:
    """`promises` is the most that each setting could save when it was tried."""

    promises: dict[Key, float] = field(default_factory=dict)
    _pace: float = 1.0  # of the incumbent, by the gains of what was accepted
    _missed: dict[Key, float] = field(default_factory=dict)  # the pace at which each brought too little

    def rules_out(self, candidate: Candidate) -> bool:
        """It was tried, and could save hardly more now than it could then."""
        before = self.promises.get(candidate.key)
        return before is not None and candidate.bound < AGAIN * before

    def begin(self, key: Key, promise: float) -> None:
        self.promises[key] = promise
        self._missed.pop(key, None)

    def recall(self, verdicts: Iterable[KnobVerdict]) -> None:
        """What an earlier search has tried. What the guard has dropped was no miss."""
        for each in verdicts:
            key = each.knob, str(each.setting)
            self.begin(key, each.bound if each.bound is not None else 1.0)
            if each.ruling is Ruling.KEEP:
                self.advance(each.gain)
            elif each.guard is None:
                self.miss(key, each.gain)

    def miss(self, key: Key, gain: Gain | None) -> None:
        """It brought too little. What was far behind gets no other chance."""
        if gain is not None and gain.value > -FAR_BEHIND:
            self._missed[key] = self._pace

    def advance(self, gain: Gain | None) -> None:
        """Another incumbent stands, faster by this."""
        self._pace *= 1.0 + (gain.value if gain is not None else 0.0)
        for key, pace in self._missed.items():
            if self._pace >= AFRESH * pace:
                self.promises.pop(key, None)

    def has_missed(self, key: Key) -> bool:
        """It brought too little once: what was never tried goes first."""
        return key in self._missed
