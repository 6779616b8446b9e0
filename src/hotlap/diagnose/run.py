"""From timelines and experiments to a diagnosis: all rules look, experiments decide, the largest saving comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hotlap.diagnose import rules
from hotlap.diagnose.severity import LOUDNESS, Weighed, tried_for, weighed
from hotlap.discover import units
from hotlap.facts.diagnosis import Basis, Cause, Diagnosis, Finding, Fix, Severity
from hotlap.facts.experiment import Experiments
from hotlap.facts.host import Host
from hotlap.facts.summary import by_pace
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob
from hotlap.ports.rule import Rule, Sight

GROUP = "hotlap.rules"  # entry points of rules that live outside hotlap

EXPLAINS = 0.4  # of the wider cause's share: that is all of the wait, a narrower one may be a part of it
AS_MUCH = 0.8  # of the larger saving: measured savings this close are equals
HALF = (
    0.5  # of exposed time, which is a bound, or of what it explains: what saves this much of it comes first
)

Rules = Mapping[Cause, Rule]


def diagnose(
    timelines: Sequence[Timeline],
    host: Host,
    knobs: Iterable[Knob] = (),
    experiments: Experiments | None = None,
) -> Diagnosis:
    """All findings, the one to act on first; none where no step was steady. The same facts give the same answer."""
    sight = sight_of(timelines, host, experiments)
    if sight is None:
        return Diagnosis()
    known, offered = all_rules(), tuple(knobs)
    findings: list[Weighed] = []
    untested: list[Finding] = []
    for rule in known.values():
        found = rule.examine(sight)
        if found is None:
            continue
        tried = tried_for(rule, sight, offered)
        answer = weighed(found, rule, tried, sight)
        if answer is not None:
            findings.append(answer)
        elif rule.hypothesis and all(each.gain is None for each in tried):
            fixes = tuple(Fix(each.knob, each.setting) for each in tried)  # whose reasons say why it was not
            untested.append(replace(found, fixes=fixes))
    ranked = rank(subsume(findings, known), known)
    return Diagnosis(
        tuple(each.finding for each in ranked), tuple(sorted(untested, key=lambda each: -each.share))
    )


def sight_of(
    timelines: Sequence[Timeline], host: Host, experiments: Experiments | None = None
) -> Sight | None:
    """What rules look at; None where no step was steady."""
    sight = Sight(by_pace(timelines), host, experiments or Experiments()) if timelines else None
    return sight if sight is not None and sight.summary.n else None


def all_rules() -> dict[Cause, Rule]:
    """Every rule that can be found, by its cause."""
    return {rule.cause: rule for rule in units(rules, Rule, GROUP)}  # type: ignore[type-abstract]


def subsume(findings: Sequence[Weighed], known: Rules) -> list[Weighed]:
    """Leave out each cause that a narrower one explains."""
    return [
        wide
        for wide in findings
        if not any(
            known[narrow.finding.cause].refines is wide.finding.cause and _explains(narrow, wide)
            for narrow in findings
        )
    ]


def rank(findings: Sequence[Weighed], known: Rules) -> list[Weighed]:
    """By severity and measured saving, ties by its lower end and then by exposed time, where one experiment answers for
    both; where two explain the same time, as their rules say. Of two changes that save about as much, the one that
    changes the numbers less comes first, then the one that attacks less of the step: it says more closely why."""
    left, ranked = list(findings), []
    while left:
        first = max(left, key=_order)
        equals = [each for each in left if _as_good(each, first)]
        first = max(equals, key=lambda each: (-each.changes, -each.attacked, *_order(each)), default=first)
        passed = [first]  # rules of others may outrank each other in a circle
        while before := [each for each in left if each not in passed and _precedes(each, first, known)]:
            first = max(before, key=_order)
            passed.append(first)
        ranked.append(first)
        left.remove(first)
    return ranked


def _order(each: Weighed) -> tuple[int, float, float, float]:
    return LOUDNESS[each.finding.severity], each.weight, each.least, each.finding.share


def _as_good(one: Weighed, other: Weighed) -> bool:
    """Whether both were shown by experiments alone, which save about as much."""
    shown = all(each.finding.basis is Basis.EXPERIMENT for each in (one, other))
    loud = one.finding.severity is not Severity.NOTE or other.finding.severity is Severity.NOTE
    return shown and loud and one.saved >= AS_MUCH * other.saved


def _precedes(one: Weighed, other: Weighed, known: Rules) -> bool:
    """Whether `one` outranks the other and brings about as much, or explains it and brings half as much. A note never
    comes before what is louder."""
    rule, cause = known[one.finding.cause], other.finding.cause
    if cause not in rule.outranks | rule.explains:
        return False
    if one.finding.severity is Severity.NOTE and other.finding.severity is not Severity.NOTE:
        return False
    if cause in rule.explains and one.saved:
        return one.saved >= HALF * other.weight
    enough = max(AS_MUCH * other.saved, (HALF if one.saved else AS_MUCH) * other.weight)
    return one.weight >= enough


def _explains(narrow: Weighed, wide: Weighed) -> bool:
    # A part stands for the whole only if that does not turn trouble into a note.
    loud = narrow.finding.severity is not Severity.NOTE or wide.finding.severity is Severity.NOTE
    return loud and narrow.weight >= EXPLAINS * wide.weight
