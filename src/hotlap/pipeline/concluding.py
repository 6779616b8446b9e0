"""The end of a search: the winner once more beside the baseline, each setting alone, and what is written."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median_low
from typing import TYPE_CHECKING

from hotlap.facts import codec
from hotlap.facts.counting import alike, worths
from hotlap.facts.plan import Plan, Proof
from hotlap.facts.trial import Figures, Goal, worth
from hotlap.facts.verdict import Gain, Guarded, Tuning
from hotlap.judge.gain import LEAST, beats, gain_of, rule_closely
from hotlap.launch import runfolder
from hotlap.measure.duel import Duel, InterruptedSearch, run_trial, scatter_of
from hotlap.pipeline.reasons import INTERRUPTED, NO_BETTER
from hotlap.seams.plan_file import write_plan

if TYPE_CHECKING:
    from hotlap.pipeline.search import Search

TUNING = "tuning.json"
_LEAST_ROUNDS, _MOST_ROUNDS = 2, 6
CONCLUSION = 2 * _LEAST_ROUNDS  # trials that the proof of a plan takes


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


def write_plan_of(search: Search) -> None:
    """The best so far, without a proof: a kill leaves it there."""
    write_plan(search.bench.folder / runfolder.PLAN, search.plan)


def _final(search: Search) -> Duel:
    """This is the figure that is shown: until it is known closely, with what the budget has left for it."""
    alone = len(search.accepted())
    return search.duel(
        Plan(), search.plan, rounds=_MOST_ROUNDS, judge=rule_closely, least=_LEAST_ROUNDS, then=alone
    )


def _proved(search: Search, final: Duel, goal: Goal) -> Gain | None:
    """What the last rounds show. Where they scatter too much to be sure of it, all runs of the script as it is and all
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
