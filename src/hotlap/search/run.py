"""A search from its beginning to its end: experiments on the running job, what won them in fresh processes, the guard's
answer on the whole plan, the winner once more beside the baseline, each setting alone, and what is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from statistics import median_low
from typing import Any

from hotlap.errors import FactError, UsageError
from hotlap.facts import codec
from hotlap.facts.plan import Plan, Proof
from hotlap.facts.rewrite import is_rewrite
from hotlap.facts.trial import Figures, Goal, alike, worth, worths
from hotlap.facts.verdict import Gain, Guarded, KnobVerdict, Ruling, Sameness, Tuning
from hotlap.judge.gain import BEHIND, LEAST, beats, gain_of, rule_closely, rule_simpler
from hotlap.launch import runfolder
from hotlap.measure.contest import Duel, InterruptedSearch, run_trial, scatter_of
from hotlap.plan.catalogue import checked, with_rewrites
from hotlap.plan.file import write_plan
from hotlap.ports.knob import Numerics
from hotlap.search.candidates import INTERRUPTED, NO_BETTER, Candidate, composed, of_the_whole
from hotlap.search.passes import (
    SHARE,
    USUAL_S,
    decide_unsure,
    end,
    experiment,
    group_of,
    next_alone,
    pass_s,
    try_together,
)
from hotlap.search.search import CONCLUSION, LEAST_PROOF_ROUNDS, Search

TUNING = "tuning.json"
_MOST_PROOF_ROUNDS = 6
_SHORTEST_LIMIT_S = 20.0  # of a trial, before it counts as hung after four times that


def run(search: Search) -> Tuning:
    """The whole search."""
    try:
        _begin(search)
        _explore(search)
        leave_out_what_is_idle(search)
        settle(search)
    except InterruptedSearch:
        search.ended = INTERRUPTED
    if search.base is None:
        raise KeyboardInterrupt
    with closing(search.guard):
        return conclude(search)


def _begin(search: Search) -> None:
    """With the original script, or where the last search for the same wish has left off."""
    resume(search)
    known = search.ledger.of(Plan()) if search.plan.settings else []
    if known:
        search.base = known[-1].figures
    elif search.plan.settings:
        search.stand(Plan())
    else:
        seconds = search.budget.seconds
        experiment(search, USUAL_S if seconds is None else SHARE * seconds, first=True)
    if not known:
        search.base = search.best.figures if search.best else None
    if search.base is not None:  # all trials of a search are held against this one
        search.bench = replace(search.bench, counts=search.base.counts)
    if search.plan.settings:
        experiment(search, pass_s(search))
    longest = max((trial.seconds for trial in search.ledger.of(Plan())), default=0.0)
    search.bench = replace(search.bench, limit_s=max(_SHORTEST_LIMIT_S, longest))
    search.guard.bench = search.bench
    if search.plan.settings:  # a search that goes on has no runs of the guard yet, and little else to do
        search.guard.guess_s = search.trial_s / 2


def _explore(search: Search) -> None:
    """What won the experiments, together; beside what is kept, experiments again; then what only fresh processes
    can show."""
    while True:
        group = [each for each in group_of(search) if search.affordable([each])]
        seconds = 0.0 if group else pass_s(search)
        if not group and not seconds and search.shown.unsure:
            decide_unsure(search)
            continue
        alone = None if group or seconds else next_alone(search)
        if len(group) > 1:
            try_together(search, group)
        elif group or alone is not None:
            search.try_one(group[0] if group else alone or group[0])
        elif seconds:
            search.said.note(
                "experiments beside the plan so far" if search.plan.settings else "more experiments"
            )
            experiment(search, seconds)
            continue
        else:
            end(search)
            return
        search.begun = True


def conclude(search: Search) -> Tuning:
    """Write the plan with its proof. What is not proved again, because the user wants an end, has none."""
    gain: Gain | None = None
    guarded: Guarded | None = None
    alone: dict[str, Gain] = {}
    base, tuned = search.base, search.best.figures if search.best else None
    try:
        if search.plan.settings and search.ended != INTERRUPTED:
            search.said.note("the winner once more, beside the baseline")
            final = _final(search)
            before, after = alike(final.before, final.after)
            base, tuned = _middle(before) or base, _middle(after) or tuned
            gain = _proved(search, final, Goal.SPEED)
            if not beats(_proved(search, final, search.goal)):
                search.plan, search.ended, tuned = Plan(), NO_BETTER, base
            else:
                guarded = search.guard.ask(search.plan, final.last)
                alone = _alone(search)
    except InterruptedSearch:
        search.ended = INTERRUPTED
    plan = replace(search.plan, proof=_proof(search, gain, guarded))
    assert base is not None
    tuning = Tuning(
        base,
        tuned,
        plan,
        gain if plan.settings else None,
        guarded,
        tuple(search.verdicts),
        alone,
        len(search.ledger.trials),
        time.monotonic() - search.started,
        search.ended,
    )
    write_plan(search.bench.folder / runfolder.PLAN, plan)
    codec.write_json(search.bench.folder / TUNING, tuning)
    return tuning


def _final(search: Search) -> Duel:
    """This is the figure that is shown: until it is known closely, with what the budget has left for it."""
    alone = len(search.accepted())
    return search.duel(
        Plan(),
        search.plan,
        rounds=_MOST_PROOF_ROUNDS,
        judge=rule_closely,
        least=LEAST_PROOF_ROUNDS,
        then=alone,
    )


def _proved(search: Search, final: Duel, goal: Goal) -> Gain | None:
    """What the last rounds show. Where they scatter too much to be sure of it, all runs of the original script and all
    of the plan since it was accepted: on a machine that others use, two rounds may be two bad moments. The runs that it
    was chosen for do not count."""
    last = search.gain(final, goal)
    if last is None or last.decided or last.value < LEAST:
        return last
    ledger = search.ledger
    since = [trial.figures for trial in ledger.of(search.plan) if trial.number > search.accepted_at]
    rates = worths(goal, ledger.figures(Plan()), [each for each in since if each])
    return gain_of(rates[0], rates[1], scatter_of(ledger, goal), final=True)


def _middle(figures: list[Figures]) -> Figures | None:
    """Those of the trial in the middle: what a run will most likely bring."""
    if not figures:
        return None
    rate = median_low([worth(each) for each in figures])
    return next(each for each in figures if worth(each) == rate)


def _proof(search: Search, gain: Gain | None, guarded: Guarded | None) -> Proof | None:
    if gain is None or guarded is None or not search.plan.settings:
        return None
    return Proof(gain.value, gain.interval, guarded.sameness.value, search.host.named)


def _alone(search: Search) -> dict[str, Gain]:
    """Each accepted setting by itself, with what came with it, where there are several and the budget allows it."""
    found: dict[str, Gain] = {}
    accepted = search.accepted()
    if len(accepted) < 2:
        return found
    for own in accepted:
        plan, ledger = Plan(own), search.ledger
        if not ledger.rates(plan):
            if not search.fits(1):
                continue
            run_trial(search.bench, ledger, plan, search.said.trial)
        rates = worths(Goal.SPEED, ledger.figures(Plan()), ledger.figures(plan))
        gain = gain_of(rates[0], rates[1], scatter_of(ledger, Goal.SPEED), final=True)
        if gain is not None:
            found[list(own)[-1]] = gain
    return found


# What a plan is left with before its proof: settings without which it is as fast go, and those with which the guard
# does not call it the same.


_LOOSEST_FIRST = tuple(reversed(Numerics))


def leave_out_what_is_idle(search: Search) -> None:
    """The tie goes to the plan with fewer settings: what the later ones have made needless is taken out, with what
    stands beside it. The last one has just won by itself, unless it was kept in a group."""
    accepted = search.accepted()
    for own in accepted if len(accepted) > 1 else ():  # the proof asks a single one
        key, last = list(own)[-1], list(search.plan.settings)[-1]
        if (key == last and key not in search.in_a_group) or not search.spares(2 * BEHIND):
            continue
        kept = search.plan.settings.items()
        without = Plan({each: value for each, value in kept if each not in own})
        held = search.duel(search.plan, without, judge=rule_simpler, par=-LEAST)
        if held.failed is None and rule_simpler(search.gain(held)) is Ruling.KEEP:
            left = Candidate(key, search.plan.settings[key], 0.0)
            search.plan, search.best = without, held.last
            search.declare(left, Ruling.DROP, None, None, "the plan is as fast without it by now")
            search.write_plan()


def settle(search: Search) -> None:
    """The guard's answer on the whole plan. Where it is not "same", settings of the loosest class go, the last one of
    them before the others. Where there is no time for another answer all of them go; what was only not decided is then
    left to a search that goes on."""
    steps = _steps(search)
    while search.plan.settings:
        search.said.note("does the whole plan train the same model?")
        guarded = search.guard.ask(search.plan, search.best)
        if guarded.sameness is Sameness.SAME:
            return
        suspects = _suspects(search, steps)
        another = _folded(search, [each for each in steps if each is not suspects[0]])
        in_time = search.in_time(CONCLUSION, search.guard.answer_s(another, search.best))
        for each in suspects[:1] if in_time else suspects:
            steps.remove(each)
            step_back(search, _folded(search, steps))
            lasts = in_time or guarded.sameness is Sameness.DIFFERENT
            search.declare(
                _candidate_of(each), Ruling.DROP, each.gain, guarded, of_the_whole(guarded), lasts=lasts
            )
        search.write_plan()


def step_back(search: Search, plan: Plan) -> None:
    """Stand on a plan with less in it. What it brings is not known where it was never run."""
    known = search.ledger.of(plan)
    search.plan = plan
    if known:
        search.best = known[-1]
    elif search.best is not None:
        search.best = replace(search.best, figures=None)


def _steps(search: Search) -> list[KnobVerdict]:
    """What was accepted and still stands, in its order; of a knob that was climbed, every step. First what stands
    without a verdict, as a kill between two lines of a ledger leaves it."""
    settings = search.plan.settings
    kept: dict[tuple[str, str], KnobVerdict] = {}
    for each in search.verdicts:
        kept.pop((each.knob, str(each.setting)), None)
        if each.ruling is Ruling.KEEP and each.knob in settings:
            kept[each.knob, str(each.setting)] = each
    known = {key for each in kept.values() for key in (each.knob, *each.beside)}
    return [
        *(KnobVerdict(key, settings[key], Ruling.KEEP) for key in settings if key not in known),
        *kept.values(),
    ]


def _suspects(search: Search, steps: Sequence[KnobVerdict]) -> list[KnobVerdict]:
    classes = [_numerics(search, each) for each in steps]
    loosest = next(each for each in _LOOSEST_FIRST if each in classes)
    return [each for each, its in zip(steps, classes, strict=True) if its is loosest][::-1]


def _numerics(search: Search, step: KnobVerdict) -> Numerics:
    return search.guard.numerics_of(Plan({**step.beside, step.knob: step.setting}), search.best)


def _folded(search: Search, steps: Sequence[KnobVerdict]) -> Plan:
    """The plan of these steps, without what had been taken out of it before."""
    plan = Plan()
    for each in steps:
        plan = composed(plan, _candidate_of(each), search.knobs)
    return Plan({key: value for key, value in plan.settings.items() if key in search.plan.settings})


def _candidate_of(step: KnobVerdict) -> Candidate:
    """What was ruled on."""
    return Candidate(step.knob, step.setting, step.bound or 0.0, step.beside)


# A search that goes on where an earlier one for the same wish has left off: what was ruled is not tried again.


def resume(search: Search) -> None:
    """Take up what the ledger holds."""
    ledger = search.ledger
    # An older hotlap may have ruled on settings that there are no more.
    ruled = [
        each for each in ledger.ruled if each.wish == search.wish.words and _known(search, each.verdict.knob)
    ]
    if not ruled:
        return
    search.plan = Plan(_still_a_plan(search, ruled[-1].settings))
    search.said.note(f"going on from the ledger: {len(ruled)} verdicts are known")
    search.verdicts = [each.verdict for each in ruled]
    search.tried.recall(search.verdicts)
    search.begun = True
    search.accepted_at = max((trial.number for trial in ledger.trials), default=0)


def _known(search: Search, knob: str) -> bool:
    return knob in search.knobs or is_rewrite(knob)


def _still_a_plan(search: Search, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Another hotlap, or a hand, may have written the ledger: what is no plan must not be proved as one."""
    try:
        return checked(settings, with_rewrites(search.knobs, settings))
    except UsageError as error:
        what = f"the ledger in {search.bench.folder} ends with settings that are no plan: {error.what}"
        raise FactError(what, "start a new search: --out DIR") from None
