"""Experiments in a search: a pass of them beside the incumbent, and what becomes of each change that they measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hotlap.diagnose.severity import OF_INPUT
from hotlap.experiments.analysis import Change
from hotlap.experiments.conductor import ENDED_IT, NOT_READY, SMALLER_FIRST
from hotlap.experiments.leads import Lead, candidates_for
from hotlap.facts.experiment import FREE_INPUT, Experiment, ExperimentState
from hotlap.facts.plan import Plan
from hotlap.facts.rewrite import is_rewrite, shown_setting
from hotlap.facts.trial import Goal
from hotlap.facts.verdict import PASSING, Gain, Ruling
from hotlap.judge.gain import LEAST, all_of, beside_blocks, rule
from hotlap.measure.contest import InterruptedSearch
from hotlap.measure.ledger import same_settings
from hotlap.plan.record import answer
from hotlap.ports.knob import Numerics
from hotlap.ports.target import Seam
from hotlap.ports.values import NotAllowedError, Whole
from hotlap.propose.presets import asking_plan
from hotlap.search.candidates import (
    BATCH,
    KEEPS_BATCH,
    NO_TIME,
    NOT_SWITCHED,
    NOTHING_LEFT,
    SPENT,
    TOO_LARGE_TO_JUDGE,
    Candidate,
    candidates,
    cannot_act,
    composed,
    needs_permission,
    not_allowed,
    not_measured,
    side_by_side,
    together,
    too_little,
    with_its_rate,
)
from hotlap.search.search import Search, Shown

SHARE = 0.25  # of the budget, for one pass
USUAL_S = 60.0  # where the budget is a number of trials
_LEAST_S = 3.0  # a shorter pass shows nothing


def pass_s(search: Search) -> float:
    """Seconds for another pass; 0 where none is of use, or the budget has no room for it and for what it would find.
    The first that is found is tried in any case: of a small budget a pass is a better use than a guess."""
    shown = search.shown
    more = shown.cut_short or shown.unsure
    if search.goal is not Goal.SPEED or (shown.plan == search.plan and not more):
        return 0.0
    if search.budget.seconds is None:
        return USUAL_S if search.fits_if_kept(USUAL_S, trials=1) else 0.0
    spare = search.spare_s(1) if search.begun else search.left_s - search.trial_s
    spare = min(SHARE * search.budget.seconds, spare)
    return spare if spare >= _LEAST_S else 0.0


def experiment(search: Search, seconds: float, *, first: bool = False) -> None:
    """A trial of the incumbent, followed by what nobody has tried beside it yet where there are `seconds` for it."""
    if search.goal is not Goal.SPEED:
        search.stand(search.plan)
        return
    before = _made(search)
    known = {key for key, each in before.items() if not _had_no_turn(each) and not _is_unsure(each)}

    def wanted(change: Change) -> bool:
        candidate = Candidate(change.knob, change.setting, change.bound, change.beside)
        new = candidate.key not in known and not search.tried.rules_out(candidate)
        return new and _can_join(search, candidate)

    one_turn_each = first and search.budget.seconds is not None
    lead = Lead(search.host, seconds, search.said.note, search.plan, wanted, one_turn_each)
    search.stand(search.plan, lead if seconds else None)
    made = _made(search)
    if made or seconds:
        learn(search, made.values(), progressed=len(made.keys() - before.keys()) > 0)


def learn(search: Search, made: Iterable[Experiment], *, progressed: bool) -> None:
    """Winners that are allowed go on to fresh processes; what brings nothing, or is not allowed, has its verdict."""
    shown = search.shown = Shown(search.plan)
    barred: set[str] = set()
    bounds = {each.key: each.bound for each in offered(search)}
    for each in sorted(made, key=lambda one: -(one.gain or 0.0)):
        if each.knob == FREE_INPUT:
            shown.free = each.interval.high if each.interval else each.gain
            continue
        known = _candidate(search, each)
        candidate = replace(known, bound=bounds.get(known.key, 1.0)) if known is not None else None
        if candidate is None or search.tried.rules_out(candidate):
            continue
        if each.gain is None or each.interval is None:
            shown.cut_short |= progressed and _had_no_turn(each)
            if each.reason == SMALLER_FIRST:
                search.tried.begin(candidate.key, candidate.bound)
                search.declare(candidate, Ruling.DROP, None, None, SMALLER_FIRST)
            elif each.state is ExperimentState.REFUSED and each.reason not in (NOT_READY, ENDED_IT):
                shown.refused[candidate.key] = each.reason
            continue
        if progressed and _is_unsure(each):
            shown.unsure.append(each)
        else:
            _decide(search, each, candidate, barred)


def decide_unsure(search: Search) -> None:
    """No other pass follows: what is known must do."""
    bounds, barred = {each.key: each.bound for each in offered(search)}, set[str]()
    for each in search.shown.unsure:
        candidate = _candidate(search, each)
        if candidate is not None:
            _decide(search, each, replace(candidate, bound=bounds.get(candidate.key, 1.0)), barred)
    search.shown.unsure.clear()


def _decide(search: Search, each: Experiment, candidate: Candidate, barred: set[str]) -> None:
    """On what was measured."""
    assert each.gain is not None and each.interval is not None
    shown, gain = search.shown, Gain(each.gain, each.interval, each.blocks)
    barrier = obstacle(search, candidate, each.numerics)
    seems = each.state is ExperimentState.FASTER or (
        each.state is ExperimentState.UNDECIDED and gain.value >= LEAST
    )
    if not seems or (barrier and each.state is not ExperimentState.FASTER):
        search.drop_live(candidate, gain)
    elif not barrier:
        shown.gains[candidate.key] = gain
        if each.state is ExperimentState.FASTER:
            shown.winners.append(candidate)
    elif candidate.knob not in barred:  # of each knob the best
        barred.add(candidate.knob)
        search.drop_live(candidate, gain, barrier)


def _is_unsure(tried: Experiment) -> bool:
    """Its interval holds no gain as well as a noticeable one."""
    return (
        tried.state is ExperimentState.UNDECIDED
        and tried.interval is not None
        and tried.interval.high >= LEAST
    )


def offered(search: Search) -> list[Candidate]:
    """Every setting that could save 3 % of the incumbent's step."""
    return [Candidate(*each) for each in candidates_for(search.seen, search.host, search.knobs.values())]


def obstacle(search: Search, candidate: Candidate, numerics: str = "") -> str:
    """Why a setting may be measured and not be kept; `numerics` is its class on this job, where that is known."""
    own = Numerics(numerics) if numerics else search.knobs[candidate.knob].numerics
    if own not in search.wish.allowed:
        return not_allowed(own.value)
    if candidate.knob != BATCH:
        return ""
    return (
        KEEPS_BATCH
        if search.wish.keep_batch
        else ""
        if search.guard_can_tell(candidate.setting)
        else TOO_LARGE_TO_JUDGE
    )


def group_of(search: Search) -> list[Candidate]:
    """What won, as one plan: the largest gain first, one setting of each knob, and nothing for which another would have
    to go. Of changes of the input the best alone: most save the same wait, and the next pass shows what is left."""
    shown, knobs = search.shown, search.knobs
    untried = [each for each in shown.winners if not search.tried.rules_out(each)]
    ranked = sorted(untried, key=lambda each: -shown.gains[each.key].value)
    chosen: list[Candidate] = []
    for each in side_by_side(_simplest(search, ranked), search.plan, knobs):
        # Rewrites are of different lines: each saves its own part.
        feeds = bool(knobs[each.knob].relieves & OF_INPUT) and not is_rewrite(each.knob)
        if not feeds or not any(knobs[other.knob].relieves & OF_INPUT for other in chosen):
            chosen.append(each)
    return chosen[:1] if shown.apart else chosen


def try_together(search: Search, group: list[Candidate]) -> None:
    """One plan with all of them meets the incumbent in fresh processes. Where it does not hold, each is tried alone."""
    challenger = together(search.plan, group, search.knobs)
    gains = [search.shown.gains[each.key] for each in group]
    shown = all_of(gains)
    held = search.duel(search.plan, challenger, shown=shown)
    acts = held.failed is None and not held.idle
    if (
        acts
        and rule(beside_blocks(search.gain(held), shown)) is Ruling.KEEP
        and not search.too_large(held.last)
    ):
        plan = Plan({key: challenger.settings[key] for key in challenger.settings if key not in held.refused})
        guarded = search.guard.look(plan, held.last)
        if guarded.sameness in PASSING:
            paid = search.paid_back(plan, held)
            search.stand_on(plan, held)
            for each, gain in zip(group, gains, strict=True):
                search.tried.begin(each.key, each.bound)
                if each.knob in held.refused:
                    search.declare(each, Ruling.DROP, None, None, cannot_act(held.refused[each.knob]))
                    continue
                search.in_a_group.add(each.knob)
                builds = bool(search.knobs[each.knob].builds_s)
                search.declare(each, Ruling.KEEP, gain, guarded, "", live=True, paid=paid if builds else None)
            return
    search.shown.apart = True
    search.said.note("together they do not hold: one by one")


def _made(search: Search) -> dict[tuple[str, str], Experiment]:
    """What was tried beside the present plan, in an earlier search too; the last result of each setting."""
    found: dict[tuple[str, str], Experiment] = {}
    for trial in search.ledger.trials:
        tried = search.bench.experiments(trial.number) if same_settings(trial.plan, search.plan) else None
        for each in tried.tried if tried is not None else ():
            candidate = _candidate(search, each) if each.knob != FREE_INPUT else None
            key = candidate.key if candidate is not None else (each.knob, each.setting)
            if key not in found or each.state is not ExperimentState.NOT_TRIED:
                found[key] = each
    return found


def why_no_turn(search: Search, candidate: Candidate) -> str:
    """Why no experiment has measured it, beside whichever plan."""
    for trial in reversed(search.ledger.trials):
        made = search.bench.experiments(trial.number)
        for each in made.tried if made is not None else ():
            if (each.knob, each.setting) == candidate.key and each.reason:
                return each.reason
    return NOT_SWITCHED


def _had_no_turn(tried: Experiment) -> bool:
    """For want of time: another pass may have some."""
    return tried.state is ExperimentState.NOT_TRIED and tried.reason != SMALLER_FIRST


def _candidate(search: Search, tried: Experiment) -> Candidate | None:
    """None for a setting that this hotlap does not know."""
    knob = search.knobs.get(tried.knob)
    if knob is None:
        return None
    try:
        setting = knob.values.read(tried.setting)
    except NotAllowedError:
        return None
    found = Candidate(tried.knob, setting, 1.0, tried.beside)
    return with_its_rate(found, search.seen[0]) if search.seen else found


def _can_join(search: Search, candidate: Candidate) -> bool:
    """Whether it can be switched beside the plan: nothing else has to go for it, and what stands is not itself to be
    switched; loaders are built anew, with any setting."""
    standing, knob = search.plan.settings, search.knobs[candidate.knob]
    if candidate.knob in standing and (
        standing[candidate.knob] == candidate.setting or knob.seam is not Seam.LOADER
    ):
        return False
    after = composed(search.plan, candidate, search.knobs).settings
    return all(after.get(key) == standing[key] for key in standing if key != candidate.knob)


def _simplest(search: Search, ranked: list[Candidate]) -> list[Candidate]:
    """Of numbers of one knob that are as fast as its best one within 3 %, the smallest; the others as they were."""
    gains, best = search.shown.gains, dict[str, Candidate]()
    for each in ranked:
        first = best.setdefault(each.knob, each)
        counts = isinstance(search.knobs[each.knob].values, Whole) and each.knob != BATCH
        close = 1 + gains[each.key].value >= (1 + gains[first.key].value) * (1 - LEAST)
        if counts and close and each.setting < best[each.knob].setting:
            best[each.knob] = each
    return list(best.values())


# Settings that no experiment has decided: those that fresh processes try one by one, and those that nothing tries.
#
# They cannot be switched while the script runs, were refused there, had no turn, or seem to pay and are not sure.


_MORE = "another pass of experiments"


def next_alone(search: Search) -> Candidate | None:
    """The next one that may be kept, can act and fits into the budget."""
    for each in untested(search):
        if obstacle(search, each) or not search.affordable([each]):
            continue
        refusal = _refusal(search, each)
        if not refusal:
            return each
        search.tried.begin(each.key, each.bound)
        search.declare(each, Ruling.DROP, None, None, refusal)
    return None


def untested(search: Search) -> list[Candidate]:
    """By what was measured of them, or by the most that they could save; what has missed once comes last."""
    bounded = [_bounded(search, each) for each in offered(search)]
    known, timeline = search.tried.promises, search.seen[0]
    found = candidates(bounded, timeline, search.knobs, search.plan, search.wish, known)
    brought = {key for each in found for key in each.beside}  # it has little to act on without what brings it
    worth = [each for each in found if each.bound >= LEAST or search.goal is Goal.MEMORY]
    worth = [each for each in worth if each.knob not in brought]
    return sorted(worth, key=lambda each: (search.tried.has_missed(each.key), -_saves(search, each)))


def end(search: Search) -> None:
    """Each setting that was not tried has a verdict with the reason, and the search says why it ends."""
    shown = search.shown
    left = [each for each in shown.winners if not search.tried.rules_out(each)]
    known = {each.key for each in left}
    measured = {(each.knob, str(each.setting)) for each in search.verdicts if each.gain is not None}
    for each in untested(search):
        if each.key in known:
            continue
        barrier, refused = obstacle(search, each), shown.refused.get(each.key, "")
        if not barrier:
            left.append(each)
            continue
        if each.key in measured:  # it needs no permission to say that it brought nothing
            continue
        search.tried.begin(each.key, each.bound)
        why = cannot_act(refused) if refused else not_measured(why_no_turn(search, each), barrier)
        search.declare(each, Ruling.DROP, None, None, why)
    for each in (one for one in left if not search.tried.has_missed(one.key)):
        gain = shown.gains.get(each.key)
        search.declare(each, Ruling.DROP, gain, None, NO_TIME, live=gain is not None)
    search.ended = _why(search, left)


def _why(search: Search, left: list[Candidate]) -> str:
    moved = search.goal is Goal.SPEED and (search.shown.plan != search.plan or search.shown.cut_short)
    if left or moved:
        trials, more_s = search.needs(left[:1])
        what = shown_setting(left[0].knob, left[0].setting) if left else _MORE
        if search.budget.trials is not None:
            spent, rest, needed = search.left_trials < 1, f"{search.left_trials} trials", f"{trials} trials"
        else:
            spent, rest = search.left_s < search.trial_s, f"{search.left_s:.0f} s"
            needed = f"{trials * search.trial_s + more_s:.0f} s"
        return SPENT if spent else too_little(rest, what, needed)
    words = [
        each.value for each in Numerics if any(f"--allow {each}" in one.reason for one in search.verdicts)
    ]
    return needs_permission(",".join(words)) if words else NOTHING_LEFT


def _refusal(search: Search, candidate: Candidate) -> str:
    """Whether a knob can act is asked before a trial is paid for: one short run answers for all of them."""
    if search.answers is None:
        search.answers = _asked(search)
    known = search.answers.get(candidate.knob)
    if known is None or known["acts"]:
        return obstacle(search, candidate, known["numerics"] if known else "")
    return cannot_act(known["reason"] or "nothing asked for it")


def _asked(search: Search) -> dict[str, dict[str, Any]]:
    """By knob; nothing where the job did not get so far."""
    search.said.note("which settings can act on this job?")
    wanted = {each.knob: each.setting for each in reversed(untested(search))}
    records, interrupted = search.bench.ask(Plan({**asking_plan(search.knobs).settings, **wanted}))
    if interrupted:
        raise InterruptedSearch
    fitted = records[0].fitted if records and records[0].steps else ()
    return {
        key: answer(knob, [each for each in fitted if each.knob == key])
        for key, knob in search.knobs.items()
        if fitted
    }


def _bounded(search: Search, candidate: Candidate) -> Candidate:
    """No change of the input saves more than free input does."""
    free = search.shown.free if search.shown.plan == search.plan else None
    if free is None or not search.knobs[candidate.knob].relieves & OF_INPUT:
        return candidate
    return replace(candidate, bound=min(candidate.bound, 1.0 - 1.0 / (1.0 + max(0.0, free))))


def _saves(search: Search, candidate: Candidate) -> float:
    """What was measured, or the most that it could be."""
    gain = search.shown.gains.get(candidate.key)
    return 1.0 - 1.0 / (1.0 + gain.value) if gain is not None else candidate.bound
