"""The conformance suite finds what is wrong with a rule."""

from __future__ import annotations

import importlib.util
import sys
from types import SimpleNamespace

import pytest

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Ending, ProbeCost, Runtime, Stage, Steps, Timeline, Warmup
from hotlap.ports.rule import Sight
from hotlap.testing.rules import check_order, check_rule, evidence_keys

CARD = '''"""Logs are written too often.

What it is
    Logs.
How it is recognised
    By its share.
What to do
    Less.
Evidence
    `stage_ms`: a step
    `every`: optional, steps
"""
'''
BODY = """
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule

class Own(Rule):
    cause = Cause.LOGGING_HEAVY

    def examine(self, sight):
        share = sight.summary.share(Stage.LOG)
        if share < 0.1:
            return None
        return Finding(self.cause, Severity.WARNING, share, {"stage_ms": 1.0})
"""


@pytest.fixture
def rule_from(tmp_path, monkeypatch):
    def build(text: str):
        name = f"own_rule_{abs(hash(text))}"
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module.Own()

    return build


def sight(share: float) -> Sight:
    count, wall = 20, 10_000_000
    empty = [-1] * count
    stages = {Stage.LOG: [int(wall * share)] * count, Stage.FORWARD: [int(wall * (1 - share))] * count}
    timeline = Timeline(
        rank=0,
        world=1,
        pid=1,
        ending=Ending.FINISHED,
        steps=Steps([0] * count, [wall] * count, stages, empty, empty, empty, [1] * count),
        steady_from=1,
        warmup=Warmup(1.0, 1, 0.01),
        runtime=Runtime(threads=1),
        probe=ProbeCost(0.0, 0.0, 0.0, 0),
    )
    return Sight((timeline,), Host("Linux", "a cpu", 2, 2, 2**34, 2**33, None, None, "fork"))


def test_a_sound_rule_passes(rule_from):
    found = check_rule(rule_from(CARD + BODY), sight(0.4), [sight(0.05)])
    assert found.share == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("What to do\n    Less.\n", "", "has the sections"),
        ("`stage_ms`: a step", "`stage`: a step", "its card documents"),
        ('{"stage_ms": 1.0}', "{}", "its card documents"),
        ("if share < 0.1:", "if share < 0.01:", "fires on near miss 0"),
        ("if share < 0.1:", "if share < 0.9:", "does not fire"),
        ("Severity.WARNING, share,", "Severity.WARNING, share * 9,", "has the share"),
        ("Severity.WARNING, share,", "Severity.WARNING, 0.001,", "speaks of a share"),
        ("if share < 0.1:", "if 0 < share < 0.1:", "without a steady step"),
        (
            "Cause.LOGGING_HEAVY\n",
            "Cause.LOGGING_HEAVY\n    outranks = frozenset({Cause.LOGGING_HEAVY})\n",
            "against itself",
        ),
    ],
)
def test_a_faulty_one_does_not(rule_from, old, new, complaint):
    text = CARD + BODY
    assert old in text
    with pytest.raises(AssertionError, match=complaint):
        check_rule(rule_from(text.replace(old, new)), sight(0.4), [sight(0.05)])


def test_the_order_of_causes_has_no_circle():
    def ranked(cause, *lower, refines=None, explains=()):
        return SimpleNamespace(
            cause=cause, outranks=frozenset(lower), refines=refines, explains=frozenset(explains)
        )

    sound = [ranked(Cause.HOST_SYNC, Cause.GC_PAUSES), ranked(Cause.GC_PAUSES, Cause.UNCOMPILED)]
    check_order(sound)
    with pytest.raises(AssertionError, match="no one of them comes first"):
        check_order([*sound, ranked(Cause.UNCOMPILED, Cause.HOST_SYNC)])
    with pytest.raises(AssertionError, match="no one of them comes first"):
        check_order([*sound, ranked(Cause.UNCOMPILED, explains=[Cause.HOST_SYNC])])
    with pytest.raises(AssertionError, match="refines itself"):
        check_order([ranked(Cause.HOST_SYNC, refines=Cause.HOST_SYNC)])


def test_keys_are_read_off_the_card():
    assert evidence_keys(CARD.strip('"')) == {"stage_ms": False, "every": True}
    assert evidence_keys("no section") == {}
