"""What every rule must hold to, also one that lives outside hotlap.

from hotlap.testing.rules import check_rule
check_rule(MyRule(), fires=sight_with_the_cause, silent=[sight_almost_with_it])
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hotlap.diagnose.severity import NOTE_FROM
from hotlap.discover import card
from hotlap.facts.codec import from_plain, to_plain
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.ports.rule import Rule, Sight

SECTIONS = ("What it is", "How it is recognised", "What to do", "Evidence")


def check_rule(rule: Rule, fires: Sight, silent: Iterable[Sight]) -> Finding:
    """All checks of one rule; returns the finding of the sight on which it fires."""
    check_card(rule)
    found = rule.examine(fires)
    assert found is not None, f"{rule.cause} does not fire on the timeline that should trigger it"
    check_finding(rule, found)
    assert rule.examine(fires) == found, f"{rule.cause} looks twice and sees two things"
    for number, sight in enumerate(silent):
        seen = rule.examine(sight)
        assert seen is None, f"{rule.cause} fires on near miss {number}: {seen}"
    check_blind(rule, fires, costs_time=found.share > 0)
    return found


def check_card(rule: Rule) -> None:
    """The card has a title and its sections, in their order."""
    text = card(rule)
    heads = [line for line in text.splitlines() if line in SECTIONS]
    assert tuple(heads) == SECTIONS, (
        f"the card of {rule.cause} has the sections {heads}, not {list(SECTIONS)}"
    )
    assert text.splitlines()[0].endswith("."), f"the card of {rule.cause} does not begin with a sentence"
    assert evidence_keys(text), f"the card of {rule.cause} documents no evidence"
    assert rule.cause not in (rule.refines, *rule.outranks, *rule.explains), (
        f"{rule.cause} is ranked against itself"
    )


def check_finding(rule: Rule, found: Finding) -> None:
    """The finding is of the rule's cause, its figures are the documented ones, and it survives JSON."""
    assert found.cause is rule.cause
    assert 0.0 <= found.share <= 1.0, f"{rule.cause} has the share {found.share}"
    assert found.share >= NOTE_FROM or found.share == 0.0, f"{rule.cause} speaks of a share of {found.share}"
    assert found.severity in Severity
    assert not found.fixes, f"{rule.cause} offers fixes; knobs do that"
    keys = evidence_keys(card(rule))
    needed = {key for key, optional in keys.items() if not optional}
    assert needed <= found.evidence.keys() <= keys.keys(), (
        f"{rule.cause} gives {sorted(found.evidence)}, its card documents {sorted(keys)}"
    )
    assert from_plain(Finding, to_plain(found)) == found


def check_blind(rule: Rule, fires: Sight, costs_time: bool) -> None:
    """Without a steady step a cause that costs time is not seen; with nothing but steps no rule falls over."""
    unsteady = tuple(replace(each, steady_from=len(each.steps)) for each in fires.timelines)
    found = rule.examine(Sight(unsteady, fires.host))
    assert found is None or not costs_time, f"{rule.cause} fires without a steady step: {found}"
    bare = tuple(
        replace(
            each,
            model=None,
            loaders=(),
            workers=(),
            optimizers=(),
            lines=(),
            syncs=(),
            cadences=(),
            gauges=(),
        )
        for each in fires.timelines
    )
    found = rule.examine(Sight(bare, fires.host))
    if found is not None:
        check_finding(rule, found)


def check_order(rules: Iterable[Rule]) -> None:
    """Which cause outranks or explains which, and which refines which, goes round in no circle."""
    known = list(rules)
    after: dict[Cause, set[Cause]] = {rule.cause: set(rule.outranks | rule.explains) for rule in known}
    for rule in known:
        _follow(rule.cause, after, (rule.cause,))
    _no_circle({rule.cause: rule.refines for rule in known})


def evidence_keys(text: str) -> dict[str, bool]:
    """The keys of a card's `Evidence` section, and whether each is optional."""
    _, _, section = text.partition("\nEvidence\n")
    entries = re.findall(r"^ +`(\w+)`: (.*)$", section, flags=re.MULTILINE)
    return {key: meaning.startswith("optional") for key, meaning in entries}


def _follow(cause: Cause, after: dict[Cause, set[Cause]], way: tuple[Cause, ...]) -> None:
    for lower in after.get(cause, ()):
        assert lower not in way, f"{' > '.join([*way, lower])}: no one of them comes first"
        _follow(lower, after, (*way, lower))


def _no_circle(wider: dict[Cause, Cause | None]) -> None:
    for start in wider:
        met, cause = {start}, wider[start]
        while cause is not None:
            assert cause not in met, f"{start} refines itself"
            met.add(cause)
            cause = wider.get(cause)
