"""From timelines to a diagnosis: all rules look, narrow causes replace wide ones, the dearest comes first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from hotlap.diagnose import rules
from hotlap.diagnose.fixes import fixes_of
from hotlap.diagnose.severity import weight
from hotlap.discover import units
from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Severity
from hotlap.facts.host import Host
from hotlap.facts.pace import by_pace
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob
from hotlap.ports.rule import Rule, Sight

GROUP = "hotlap.rules"  # entry points of rules that live outside hotlap

EXPLAINS = (
    0.4  # of the wider cause's share: that is all of the wait, a narrower share only what mending it saves
)
AS_MUCH = 0.8  # of the larger share: savings this close cannot be told apart before they are tried

Rules = Mapping[Cause, Rule]


def diagnose(timelines: Sequence[Timeline], host: Host, knobs: Iterable[Knob] = ()) -> Diagnosis:
    """All findings, the one to act on first; none where no step was steady."""
    if not timelines:
        return Diagnosis()
    sight = Sight(by_pace(timelines), host)
    if not sight.summary.n:
        return Diagnosis()
    known = all_rules()
    seen = [finding for rule in known.values() if (finding := rule.examine(sight))]
    ranked = rank(subsume(seen, known), known)
    offered = tuple(knobs)
    return Diagnosis(tuple(replace(each, fixes=fixes_of(each, sight, offered)) for each in ranked))


def all_rules() -> dict[Cause, Rule]:
    """Every rule that can be found, by its cause."""
    return {rule.cause: rule for rule in units(rules, Rule, GROUP)}  # type: ignore[type-abstract]


def subsume(findings: Sequence[Finding], known: Rules) -> list[Finding]:
    """Leave out each cause that a narrower one explains."""
    return [
        wide
        for wide in findings
        if not any(
            known[narrow.cause].refines is wide.cause and _explains(narrow, wide) for narrow in findings
        )
    ]


def rank(findings: Sequence[Finding], known: Rules) -> list[Finding]:
    """By what acting on each would bring; among about equals, as their rules say."""
    left, ranked = list(findings), []
    while left:
        most = max(weight(each) for each in left)
        equals = [each for each in left if weight(each) >= AS_MUCH * most]
        outranked = {cause for each in equals for cause in known[each.cause].outranks}
        free = [each for each in equals if each.cause not in outranked]
        first = max(free or equals, key=weight)
        ranked.append(first)
        left.remove(first)
    return ranked


def _explains(narrow: Finding, wide: Finding) -> bool:
    # A part stands for the whole only if that does not turn trouble into a note.
    loud = narrow.severity is not Severity.NOTE or wide.severity is Severity.NOTE
    return loud and narrow.share >= EXPLAINS * wide.share
