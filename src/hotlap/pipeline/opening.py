"""The opening of a search: all that is predicted to help is tried as one plan, and asked of each setting later.

One setting may pay only beside another, as a larger batch beside memory that is kept: one by one, their order would
decide what is found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.facts.plan import Plan
from hotlap.facts.trial import Goal
from hotlap.facts.verdict import PASSING, Ruling
from hotlap.judge.gain import BEHIND, LEAST, rule, rule_predicted
from hotlap.measure.duel import Duel
from hotlap.pipeline.concluding import write_plan_of
from hotlap.pipeline.reasons import cannot_act, slower
from hotlap.pipeline.settling import candidate_of, step_back, unasked
from hotlap.propose.search import Candidate, opening, together

if TYPE_CHECKING:
    from hotlap.pipeline.search import Search

_LEAST = 2  # settings: one is a candidate as any other
_TRIALS = (
    2 * BEHIND
)  # that it takes to ask of a setting what it brings, where the answer is plain; else twice that


def begin_with_all(search: Search) -> None:
    """Where it does not hold, each is tried by itself."""
    if search.goal is not Goal.SPEED or search.plan.settings or search.verdicts:
        return
    group = opening(search.candidates(), search.plan, search.knobs)
    challenger = together(search.plan, group, search.knobs)
    builds_s = sum(search.knobs[each.knob].builds_s for each in group)
    if len(group) < _LEAST or not search.fits_if_kept(builds_s, challenger):
        return
    search.said.note(f"{len(group)} settings that are predicted to help, all together")
    search.begun = True
    held = search.duel(search.plan, challenger)
    if not _stands(search, held, group, challenger):
        search.said.note("together they do not hold: one by one")


def _stands(search: Search, held: Duel, group: list[Candidate], challenger: Plan) -> bool:
    """Whether it wins and passes the guard: then it is the incumbent, without what cannot act."""
    acting = [each for each in group if each.knob not in held.refused]
    better = held.failed is None and rule(search.gain(held)) is Ruling.KEEP
    if not better or search.too_large(held.last) or len(acting) < _LEAST:
        return False
    settings = challenger.settings.items()
    plan = Plan({key: value for key, value in settings if key not in held.refused})
    guarded = search.guard.look(plan, held.last)
    if guarded.sameness not in PASSING:
        return False
    search.stand_on(plan, held)
    for each in group:
        search.tried.begin(each.key, each.promise)
        if each in acting:
            search.declare(each, Ruling.KEEP, None, guarded, "")
        else:
            search.declare(each, Ruling.DROP, None, None, cannot_act(held.refused[each.knob]))
    return True


def asking_s(search: Search) -> float:
    """What it takes to ask of each setting of the opening what it brings, beside the longest answer of the guard."""
    count = len(unasked(search))
    longest_s, usual_s = (
        search.guard.answer_s(search.plan, search.best, at_most=at_most) for at_most in (True, False)
    )
    return count * _TRIALS * search.trial_s + longest_s - usual_s if count else 0.0


def ask_of_each(search: Search) -> None:
    """Of settings that were taken in together, what each brings beside all the others; what shows less than is worth a
    setting goes. Those that promised least are asked first: the budget may end before all are."""
    for own, verdict in sorted(unasked(search), key=lambda each: each[1].predicted or 0.0):
        if not search.spares(_TRIALS):
            return
        search.said.note(f"what does {verdict.knob} bring beside the others?")
        kept = search.plan.settings.items()
        without = Plan({key: value for key, value in kept if key not in own})
        held = search.duel(without, search.plan, judge=rule_predicted, least=BEHIND)
        gain = search.gain(held, Goal.SPEED)
        if gain is None:
            continue
        asked = candidate_of(verdict)
        if gain.value >= LEAST:
            search.declare(asked, Ruling.KEEP, gain, verdict.guard, "", beside_all=True)
        else:
            step_back(search, without)
            write_plan_of(search)
            search.declare(asked, Ruling.DROP, gain, None, slower(gain), beside_all=True)
