"""A search for a plan: baseline, diagnosis, candidates, duels, guard, and the plan that comes of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from hotlap.diagnose.run import diagnose
from hotlap.errors import JobError
from hotlap.facts.host import Host
from hotlap.facts.plan import Plan
from hotlap.facts.timeline import Timeline
from hotlap.facts.trial import Figures, Goal, Status, Trial
from hotlap.facts.verdict import PASSING, Gain, Guarded, Ruling, Tuning, Verdict
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
from hotlap.measure.duel import Duel, InterruptedSearch, duel, run_trial, scatter_of, scatter_of_rounds
from hotlap.measure.ledger import Ledger, Ruled
from hotlap.measure.runner import Bench
from hotlap.pipeline.asked import Budget, Said
from hotlap.pipeline.concluding import CONCLUSION, conclude, write_plan_of
from hotlap.pipeline.grouping import screen, screenable
from hotlap.pipeline.guarding import GUARD_STEPS, GuardRuns
from hotlap.pipeline.opening import ask_of_each, asking_s, begin_with_all
from hotlap.pipeline.reasons import (
    INTERRUPTED,
    NO_TIME,
    NOTHING_LEFT,
    SPENT,
    cannot_act,
    not_worth,
    slower,
    the_guard_says,
    why,
)
from hotlap.pipeline.screening import Screening
from hotlap.pipeline.settling import leave_out_what_is_idle, settle
from hotlap.pipeline.tried import Tried
from hotlap.ports.knob import Knob
from hotlap.propose.batch import BATCH
from hotlap.propose.search import Candidate, Wish, candidates, composed, simpler

_SHORTEST_LIMIT_S = 20.0  # of a trial, before it counts as hung after four times that
# After the first window: which operators there are decides what knobs have to offer, and what a step takes whose input
# is free what any cache can bring.
_PHASES = ("ops", "free")
# Also what the loader brings with other numbers of workers: it takes as long as a trial or two, and spares more than
# that where the budget would have had them tried.
_THOROUGH_PHASES, _THOROUGH_FROM_S = ("ops", "ceiling"), 240.0
_ROUND = 2  # trials of a duel at the least
_GRACE = 0.1  # of the budget, by which an answer of the guard may exceed it: without one all that was found is lost


class Search:
    """The state of one search."""

    def __init__(
        self,
        bench: Bench,
        ledger: Ledger,
        host: Host,
        knobs: Mapping[str, Knob],
        wish: Wish,
        budget: Budget,
        said: Said,
    ) -> None:
        self.bench, self.ledger, self.host, self.knobs = bench, ledger, host, knobs
        self.wish, self.goal, self.budget, self.said = wish, Goal(wish.goal), budget, said
        self.started = time.monotonic()
        self.verdicts: list[Verdict] = []
        self.plan = Plan()
        self.tried = Tried()
        self.screening = Screening()
        self.duels: list[Duel] = []  # how much rounds scatter is told by all of them
        self.begun = (
            False  # the first candidates are tried in any case: a search that tried nothing says nothing
        )
        self.in_a_group: set[str] = set()  # knobs that were kept together with others
        grace_s = _GRACE * (budget.seconds or 0.0)
        self.guard = GuardRuns(
            bench, ledger, knobs, said.note, lambda more_s: self.in_time(CONCLUSION, more_s - grace_s)
        )
        self.accepted_at = 0  # number of the last trial before the plan stood
        self.base: Figures | None = None
        self.best: Trial | None = None
        self.seen: tuple[Timeline, ...] = ()
        self.ended = ""
        self._trials_before = len(ledger.trials)

    # -- the arrow ---------------------------------------------------------------------------------------------

    def run(self) -> Tuning:
        try:
            self._begin()
            begin_with_all(self)
            self._explore()
            ask_of_each(self)
            leave_out_what_is_idle(self)
            settle(self)
        except InterruptedSearch:
            self.ended = INTERRUPTED
        if self.base is None:
            raise KeyboardInterrupt
        return conclude(self)

    def _begin(self) -> None:
        """With the script as it is, or where the last search for the same wish has left off."""
        ruled = [each for each in self.ledger.ruled if each.wish == self.wish.words]
        self._go_on(ruled)
        known = self.ledger.of(Plan()) if self.plan.settings else []
        if known:
            self.base = known[-1].figures
        else:
            self._stand(Plan(), self._first_phases())
            self.base = self.best.figures if self.best else None
        if self.base is not None:  # all trials of a search are held against this one
            self.bench = replace(self.bench, counts=self.base.counts)
        if self.plan.settings:
            self._stand(self.plan)
        longest = max((trial.seconds for trial in self.ledger.of(Plan())), default=0.0)
        self.bench = replace(self.bench, limit_s=max(_SHORTEST_LIMIT_S, longest))
        self.guard.bench = self.bench
        if self.plan.settings:  # a search that goes on has no runs of the guard yet, and little else to do
            self.guard.guess_s = self.trial_s / 2

    def _first_phases(self) -> Sequence[str]:
        seconds = self.budget.seconds
        return _THOROUGH_PHASES if seconds is not None and seconds >= _THOROUGH_FROM_S else _PHASES

    def _stand(self, plan: Plan, phases: Sequence[str] = _PHASES) -> None:
        """A trial of the incumbent, whose timeline says what to try next."""
        trial, seen = run_trial(self.bench, self.ledger, plan, self.said.trial, phases)
        if trial.figures is None:
            by_itself = "by itself" if not plan.settings else "under the plan of the last search"
            raise JobError(
                f"the job did not train {by_itself}: {trial.reason}.", "run it without hotlap first"
            )
        self.best, self.seen = trial, seen

    def _go_on(self, ruled: Sequence[Ruled]) -> None:
        """What was ruled is not tried again."""
        if not ruled:
            return
        self.said.note(f"going on from the ledger: {len(ruled)} verdicts are known")
        self.verdicts = [each.verdict for each in ruled]
        self.tried.recall(self.verdicts)
        self.plan, self.begun = Plan(ruled[-1].settings), True
        self.accepted_at = max((trial.number for trial in self.ledger.trials), default=0)

    def _explore(self) -> None:
        while True:
            found = self.candidates()
            offered = [each for each in found if self._affordable(each)]
            if not offered:
                self.ended = SPENT if found else NOTHING_LEFT
                self._tell_what_is_left(found)
                return
            several = screenable(self, offered)
            # What was predicted to bring most is not kept waiting for those that can be switched while a job runs.
            first = offered[0] in several or offered[0].predicted is None
            if several and first and self.goal is Goal.SPEED:
                screen(self, several)
            else:
                self.try_one(offered[0])
            self.begun = True

    def _tell_what_is_left(self, found: Sequence[Candidate]) -> None:
        """What could have no runs of its own any more, with what blocks of steps have shown of it."""
        for each in (one for one in found if not self.tried.has_missed(one.key)):
            shown = self.screening.gains.get(each.key)
            self.declare(each, Ruling.DROP, shown, None, NO_TIME, live=shown is not None)

    def candidates(self) -> list[Candidate]:
        diagnosis = diagnose(self.seen, self.host, self.knobs.values())
        known = self.tried.promises
        found = candidates(diagnosis, self.host, self.seen[0], self.knobs, self.plan, self.wish, known)
        found = [each for each in found if each.knob != BATCH or self._guard_can_tell(each.setting)]
        return sorted(found, key=lambda each: (self.tried.has_missed(each.key), -self._promise(each)))

    def _guard_can_tell(self, batch: int) -> bool:
        """Whether runs of the guard, which see as many samples as the script's own, make more than one step."""
        of_script = self.base.samples_per_step if self.base else None
        return of_script is None or 2 * batch <= GUARD_STEPS * of_script

    def _promise(self, candidate: Candidate) -> float:
        """What blocks of steps have shown, or what was predicted; of a further step of a knob that nobody predicted, no
        more than the last one brought."""
        shown = self.screening.gains.get(candidate.key)
        if shown is not None:
            return shown.value
        kept = [each for each in self.verdicts if each.knob == candidate.knob and each.ruling is Ruling.KEEP]
        brought = kept[-1].gain if kept and candidate.predicted is None else None
        return min(candidate.promise, brought.value) if brought else candidate.promise

    # -- one candidate -----------------------------------------------------------------------------------------

    def try_one(self, candidate: Candidate) -> None:
        self.tried.begin(candidate.key, candidate.promise)
        challenger = composed(self.plan, candidate, self.knobs)
        judge, par = (rule_simpler, -LEAST) if simpler(candidate, self.plan, self.knobs) else (rule, 0.0)
        shown = self.screening.gains.get(candidate.key) if self.goal is Goal.SPEED else None
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
            held.final = over and made <= (rounds or ROUNDS)
            room = self.fits_if_kept(0.0, after) if then is None else self.fits(_ROUND + then)
            ruling = judge(beside_blocks(self.gain(held), shown))
            return (over or ruling is not Ruling.UNDECIDED or not room) and made >= least

        most = rounds or MOST_ROUNDS
        self.duels.append(duel(self.bench, self.ledger, before, after, most, decided, self.said.trial))
        return self.duels[-1]

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
        last = held.last
        before, after = self.best.figures if self.best else None, last.figures if last else None
        paid = break_even(before, after, self.ledger.compile_s(plan)) if before and after else None
        self.stand_on(plan, held)
        self.declare(candidate, Ruling.KEEP, gain, guarded, "", paid=paid, memory=held.memory)

    def stand_on(self, plan: Plan, held: Duel) -> None:
        """The plan is the incumbent from now on."""
        self.plan, self.best, self.seen = plan, held.last, _with_operators(held.seen, self.seen)
        self.accepted_at = max(trial.number for trial in self.ledger.trials)
        self.tried.advance(self.gain(held))
        self.screening.forget()
        write_plan_of(self)

    def drop_live(self, candidate: Candidate, gain: Gain | None, cannot: str) -> None:
        """What blocks of steps within one process have surely shown to bring nothing."""
        self.tried.begin(candidate.key, candidate.promise)
        if not cannot:
            self.tried.miss(candidate.key, gain)
        reason = cannot_act(cannot) if cannot else slower(gain)
        self.declare(candidate, Ruling.DROP, gain, None, reason, live=True)

    def keep_live(self, candidate: Candidate, gain: Gain, guarded: Guarded) -> None:
        """One of several that were kept together: its own gain is what blocks of steps have shown."""
        self.tried.begin(candidate.key, candidate.promise)
        self.in_a_group.add(candidate.knob)
        self.declare(candidate, Ruling.KEEP, gain, guarded, "", live=True)

    def declare(
        self,
        candidate: Candidate,
        ruling: Ruling,
        gain: Gain | None,
        guarded: Guarded | None,
        reason: str,
        **more: Any,
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
            more.get("paid"),
            more.get("memory"),
            candidate.beside,
            more.get("live", False),
            more.get("beside_all", False),
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

    def _affordable(self, candidate: Candidate) -> bool:
        builds_s, plan = self.knobs[candidate.knob].builds_s, composed(self.plan, candidate, self.knobs)
        return not self.begun or self.fits_if_kept(builds_s + asking_s(self), plan)

    def fits_if_kept(self, more_s: float, plan: Plan | None = None) -> bool:
        """Whether these seconds, a round, and what follows where the plan is kept are within the budget."""
        answer_s = self.guard.answer_s(plan or self.plan, self.best)
        return self.fits(_ROUND + CONCLUSION, answer_s + more_s)

    def spares(self, trials: int) -> bool:
        """Whether so many trials that only make a plan simpler are within the budget, with the longest answer on it."""
        answer_s = self.guard.answer_s(self.plan, self.best, at_most=True)
        return self.fits(trials + CONCLUSION, answer_s)

    def fits(self, trials: int, guard_s: float = 0.0) -> bool:
        """Whether so many trials more, and so many seconds of the guard, are within the budget."""
        made = len(self.ledger.trials) - self._trials_before
        counted = self.budget.trials is None or made + trials <= self.budget.trials
        return counted and self.in_time(trials, guard_s)

    def in_time(self, trials: int, guard_s: float) -> bool:
        """The same of a budget in seconds: runs of the guard are no trials."""
        needed = trials * self.trial_s + guard_s
        return self.budget.seconds is None or time.monotonic() - self.started + needed <= self.budget.seconds

    @property
    def trial_s(self) -> float:
        """Of a usual trial: the first one has phases after its window."""
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
