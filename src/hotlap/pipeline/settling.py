"""What a plan is left with before its proof: settings without which it is as fast go, and those with which the guard
does not call it the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hotlap.facts.plan import Plan
from hotlap.facts.verdict import Ruling, Sameness, Verdict
from hotlap.judge.gain import BEHIND, LEAST, rule_simpler
from hotlap.pipeline.concluding import CONCLUSION, write_plan_of
from hotlap.pipeline.reasons import of_the_whole
from hotlap.ports.knob import Numerics
from hotlap.propose.search import Candidate, composed

if TYPE_CHECKING:
    from hotlap.pipeline.search import Search

_LOOSEST_FIRST = (Numerics.STATISTICAL, Numerics.ROUNDING, Numerics.BITWISE)


def leave_out_what_is_idle(search: Search) -> None:
    """The tie goes to the plan with fewer settings: what the later ones have made needless is taken out, with what
    stands beside it. The last one has just won by itself, unless it was kept in a group; those of the opening are asked
    beside all others."""
    opened = {each.knob for each in search.verdicts if each.beside_all}
    opened |= {verdict.knob for _, verdict in unasked(search)}
    for own in search.accepted():
        key, last = list(own)[-1], list(search.plan.settings)[-1]
        won = key in opened or (key == last and key not in search.in_a_group)
        if won or not search.spares(2 * BEHIND):
            continue
        kept = search.plan.settings.items()
        without = Plan({each: value for each, value in kept if each not in own})
        held = search.duel(search.plan, without, judge=rule_simpler, par=-LEAST)
        if held.failed is None and rule_simpler(search.gain(held)) is Ruling.KEEP:
            left = Candidate(key, search.plan.settings[key], None, None, 0.0)
            search.plan, search.best = without, held.last
            search.declare(left, Ruling.DROP, None, None, "the plan is as fast without it by now")
            write_plan_of(search)


def unasked(search: Search) -> list[tuple[dict[str, Any], Verdict]]:
    """Settings of the plan that were taken in without a gain of their own, with what was ruled of each."""
    last = {each.knob: each for each in search.verdicts if each.ruling is Ruling.KEEP}
    found = [(own, last[key]) for own in search.accepted() if (key := list(own)[-1]) in last]
    return [(own, verdict) for own, verdict in found if verdict.gain is None]


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
                candidate_of(each), Ruling.DROP, each.gain, guarded, of_the_whole(guarded), lasts=lasts
            )
        write_plan_of(search)


def step_back(search: Search, plan: Plan) -> None:
    """Stand on a plan with less in it. What it brings is not known where it was never run."""
    known = search.ledger.of(plan)
    search.plan = plan
    if known:
        search.best = known[-1]
    elif search.best is not None:
        search.best = replace(search.best, figures=None)


def _steps(search: Search) -> list[Verdict]:
    """What was accepted and still stands, in its order; of a knob that was climbed, every step. First what stands
    without a verdict, as a kill between two lines of a ledger leaves it."""
    settings = search.plan.settings
    kept: dict[tuple[str, str], Verdict] = {}
    for each in search.verdicts:
        kept.pop((each.knob, str(each.setting)), None)
        if each.ruling is Ruling.KEEP and each.knob in settings:
            kept[each.knob, str(each.setting)] = each
    known = {key for each in kept.values() for key in (each.knob, *each.beside)}
    return [
        *(Verdict(key, settings[key], Ruling.KEEP) for key in settings if key not in known),
        *kept.values(),
    ]


def _suspects(search: Search, steps: Sequence[Verdict]) -> list[Verdict]:
    classes = [_numerics(search, each) for each in steps]
    loosest = next(each for each in _LOOSEST_FIRST if each in classes)
    return [each for each, its in zip(steps, classes, strict=True) if its is loosest][::-1]


def _numerics(search: Search, step: Verdict) -> Numerics:
    return search.guard.numerics_of(Plan({**step.beside, step.knob: step.setting}), search.best)


def _folded(search: Search, steps: Sequence[Verdict]) -> Plan:
    """The plan of these steps, without what had been taken out of it before."""
    plan = Plan()
    for each in steps:
        plan = composed(plan, candidate_of(each), search.knobs)
    return Plan({key: value for key, value in plan.settings.items() if key in search.plan.settings})


def candidate_of(step: Verdict) -> Candidate:
    """What was ruled on."""
    return Candidate(step.knob, step.setting, step.predicted, step.predicted_interval, 0.0, step.beside)
