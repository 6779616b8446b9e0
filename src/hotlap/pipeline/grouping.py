"""Candidates that take turns within one process: those that surely pay are tried, guarded and kept together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.facts.verdict import PASSING, Ruling
from hotlap.judge.gain import all_of, beside_blocks, rule
from hotlap.pipeline.screening import MORE_TURNS, takes_s
from hotlap.propose.search import Candidate, simpler, together

if TYPE_CHECKING:
    from hotlap.pipeline.search import Search


def screenable(search: Search, offered: list[Candidate]) -> list[Candidate]:
    """Candidates for one process, as many as the budget has time for. What has missed once is not asked again before
    what was never tried."""
    again = search.tried.has_missed(offered[0].key)
    alike = [each for each in offered if search.tried.has_missed(each.key) is again]
    several = search.screening.suited(alike, search.plan, search.knobs, search.best)
    while several and search.begun and not _affordable(search, several):
        several = several[:-1]
    return several


def screen(search: Search, several: list[Candidate]) -> None:
    """Drop what brings nothing, try what surely pays; the others are left to processes of their own."""
    _take_turns(search, several)
    for _ in range(MORE_TURNS):
        undecided = search.screening.undecided(several)
        if undecided and _affordable(search, undecided):
            _take_turns(search, undecided)
    for each in several:
        cannot = search.screening.refused.get(each.key, "")
        idle = search.screening.hopeless(each) and not simpler(each, search.plan, search.knobs)
        if cannot or idle:
            search.drop_live(each, search.screening.gains.get(each.key), cannot)
    group = search.screening.winners(several, search.plan, search.knobs)
    if len(group) > 1:
        _try_together(search, group)
    elif group:
        search.try_one(group[0])


def _affordable(search: Search, several: list[Candidate]) -> bool:
    figures = search.best.figures if search.best else None
    if figures is None:
        return False
    turns_s = takes_s(search.plan, several, search.knobs, figures)
    return search.fits_if_kept(turns_s, together(search.plan, several, search.knobs))


def _take_turns(search: Search, several: list[Candidate]) -> None:
    number = f"{len(several)} settings" if len(several) > 1 else "1 setting"
    search.said.note(f"{number} in turn within one process")
    step_ms = search.best.figures.step_ms if search.best and search.best.figures else 0.0
    search.screening.measure(
        search.bench, search.ledger, search.plan, several, search.knobs, search.said.trial, step_ms
    )


def _try_together(search: Search, group: list[Candidate]) -> None:
    """One plan with all of them meets the incumbent in fresh processes. Where it does not hold, each is tried alone."""
    challenger = together(search.plan, group, search.knobs)
    gains = [search.screening.gains[each.key] for each in group]
    shown = all_of(gains)
    held = search.duel(search.plan, challenger, shown=shown)
    acting = held.last is not None and all(each.knob in held.last.stood for each in group)
    better = acting and held.failed is None and rule(beside_blocks(search.gain(held), shown)) is Ruling.KEEP
    guarded = search.guard.look(challenger, held.last) if better and not search.too_large(held.last) else None
    if guarded is None or guarded.sameness not in PASSING:
        search.screening.apart = True
        search.said.note("together they do not hold: one by one")
        return
    search.stand_on(challenger, held)
    for each, gain in zip(group, gains, strict=True):
        search.keep_live(each, gain, guarded)
