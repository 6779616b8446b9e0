"""What a plan is left with before its proof: settings without which it is as fast go, and those with which the guard
does not call it the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hotlap.facts.plan import Plan
from hotlap.facts.verdict import Ruling, Sameness
from hotlap.judge.gain import LEAST, rule_simpler
from hotlap.pipeline.concluding import write_plan_of
from hotlap.pipeline.reasons import the_guard_says
from hotlap.ports.knob import Numerics
from hotlap.propose.search import Candidate, composed

if TYPE_CHECKING:
    from hotlap.pipeline.search import Search

_LOOSEST_FIRST = (Numerics.STATISTICAL, Numerics.ROUNDING, Numerics.BITWISE)


def leave_out_what_is_idle(search: Search) -> None:
    """The tie goes to the plan with fewer settings: what the later ones have made needless is taken out, with what
    stands beside it. The last one has just won by itself, unless it was kept in a group."""
    for own in search.accepted():
        key, last = list(own)[-1], list(search.plan.settings)[-1]
        won = key == last and key not in search.in_a_group
        if won or not search.fits_if_kept(0.0):
            continue
        kept = search.plan.settings.items()
        without = Plan({each: value for each, value in kept if each not in own})
        held = search.duel(search.plan, without, judge=rule_simpler, par=-LEAST)
        if held.failed is None and rule_simpler(search.gain(held)) is Ruling.KEEP:
            left = Candidate(key, search.plan.settings[key], None, None, 0.0)
            search.plan, search.best = without, held.last
            search.declare(left, Ruling.DROP, None, None, "the plan is as fast without it by now")
            write_plan_of(search)


def settle(search: Search) -> None:
    """The guard's answer on the whole plan. Where it is not "same", settings of the loosest class go, the last one of
    them before the others; all of them where there is no time for another answer."""
    steps = _steps(search)
    while search.plan.settings:
        search.said.note("does the whole plan train the same model?")
        guarded = search.guard.ask(search.plan, search.best)
        if guarded.sameness is Sameness.SAME:
            return
        suspects = _suspects(search, steps)
        for each in suspects[:1] if search.fits_if_kept(0.0) else suspects:
            steps.remove(each)
            search.plan = _folded(search, steps)
            search.best = next(iter(search.ledger.of(search.plan)[-1:]), search.best)
            search.declare(each, Ruling.DROP, None, guarded, the_guard_says(guarded))
        write_plan_of(search)


def _steps(search: Search) -> list[Candidate]:
    """What was accepted and still stands, in its order; of a knob that was climbed, every step."""
    kept = [each for each in search.verdicts if each.ruling is Ruling.KEEP]
    return [
        Candidate(each.knob, each.setting, each.predicted, each.predicted_interval, 0.0, each.beside)
        for each in kept
        if each.knob in search.plan.settings
    ]


def _suspects(search: Search, steps: Sequence[Candidate]) -> list[Candidate]:
    classes = [_numerics(search, each) for each in steps]
    loosest = next(each for each in _LOOSEST_FIRST if each in classes)
    return [each for each, its in zip(steps, classes, strict=True) if its is loosest][::-1]


def _numerics(search: Search, step: Candidate) -> Numerics:
    return search.guard.numerics_of(Plan({**step.beside, step.knob: step.setting}), search.best)


def _folded(search: Search, steps: Sequence[Candidate]) -> Plan:
    """The plan of these steps, without what had been taken out of it before."""
    plan = Plan()
    for each in steps:
        plan = composed(plan, each, search.knobs)
    return Plan({key: value for key, value in plan.settings.items() if key in search.plan.settings})
