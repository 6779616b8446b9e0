"""`hotlap explain`: the cards of the causes."""

from __future__ import annotations

import json

import pytest

from hotlap.facts.diagnosis import Cause


def test_all_causes_with_what_they_are(hotlap):
    said = hotlap("explain")
    listed = [line.split()[0] for line in said.out.splitlines() if line and not line.startswith(" ")]
    assert said.code == 0 and listed[:-1] == sorted(Cause)
    assert "input-starved          The step waits for its data" in said.out


@pytest.mark.parametrize("cause", list(Cause))
def test_one_card_fits_the_terminal_and_keeps_its_sections_and_lists(hotlap, cause):
    said = hotlap("explain", cause)
    lines = said.out.splitlines()
    assert said.code == 0 and lines[0] == cause and max(len(line) for line in lines) <= 100
    assert [line for line in lines if line in ("What it is", "How it is recognised", "What to do", "Evidence")] == [
        "What it is", "How it is recognised", "What to do", "Evidence",
    ]  # fmt: skip


def test_wrapping_changes_no_word(hotlap):
    card = json.loads(hotlap("explain", "host-sync", "--json", "-").out)["causes"][0]["card"]
    assert hotlap("explain", "host-sync").out.split() == ["host-sync", *card.split()]


def test_a_narrow_terminal_gets_narrow_lines(hotlap, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    lines = hotlap("explain", "host-sync").out.splitlines()
    assert max(len(line) for line in lines) <= 60
    assert "    `syncs`: a step" in lines, "a list keeps its lines"


def test_a_typo_gets_a_suggestion(hotlap):
    said = hotlap("explain", "input-starvd")
    assert said.code == 2 and "did you mean 'input-starved'?" in said.err


def test_json(hotlap, tmp_path):
    facts = json.loads(hotlap("explain", "--json", "-").out)
    assert facts["schema"] == 1 and [each["cause"] for each in facts["causes"]] == sorted(Cause)
    said = hotlap("explain", "host-sync", "--json", str(tmp_path / "card.json"))
    assert (
        said.out.startswith("host-sync\n") and json.loads((tmp_path / "card.json").read_text())["schema"] == 1
    )
