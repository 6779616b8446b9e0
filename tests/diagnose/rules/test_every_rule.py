from __future__ import annotations

import re
from pathlib import Path

import pytest

from hotlap.diagnose.run import all_rules
from hotlap.discover import card
from hotlap.facts.diagnosis import Cause
from hotlap.testing.rules import check_order, check_rule, evidence_keys

RULES = all_rules()
CAUSES = Path(__file__).parents[3] / "docs" / "causes.md"


def test_every_cause_has_a_rule():
    assert RULES.keys() == set(Cause)


def test_every_rule_lives_in_the_file_of_its_cause():
    for cause, rule in RULES.items():
        assert type(rule).__module__.rpartition(".")[2] == cause.value.replace("-", "_")


@pytest.mark.parametrize("step_ms", [2.0, 40.0, 1500.0])
@pytest.mark.parametrize("cause", list(Cause), ids=str)
def test_it_fires_on_its_cause_and_not_on_near_misses_at_any_size_of_step(cause, step_ms, make, cases):
    fires, misses = cases[cause]
    assert misses, "a rule without a near miss is not tested"
    check_rule(RULES[cause], fires(make, step_ms), [miss(make, step_ms) for miss in misses])


def test_ranks_and_refinements_go_round_in_no_circle():
    check_order(RULES.values())


def test_the_table_of_causes_lists_the_evidence_that_the_cards_document():
    rows = re.findall(
        r"^\| ([\w-]+) \| (.*) \| .* \|$", CAUSES.read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    listed = {
        cause: {key: bool(mark) for key, mark in re.findall(r"`(\w+)`( \*optional\*)?", evidence)}
        for cause, evidence in rows
        if cause != "cause"
    }
    assert listed == {cause.value: evidence_keys(card(rule)) for cause, rule in RULES.items()}
