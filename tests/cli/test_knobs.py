"""`hotlap knobs`: the cards of the knobs that are there, and a plain word where there are none."""

from __future__ import annotations

import json
import sys

import pytest

from hotlap import knobs

KNOB = '''"""Pin host memory so that batches reach the GPU asynchronously.

What it does
    Builds the DataLoader with `pin_memory=True`.
Numerics
    None: the same bytes arrive.
"""
from hotlap.facts.diagnosis import Cause
from hotlap.ports.knob import Knob, Numerics, Seam


class PinMemory(Knob):
    id = "made-pin-memory"
    relieves = frozenset({Cause.TRANSFER_EXPOSED})
    seam = Seam.LOADER
    numerics = Numerics.BITWISE

    def settings(self, host, timeline):
        return (True,)

    def ceiling(self, timeline, host):
        return 0.1

    def apply(self, target, setting):
        return lambda: None
'''


@pytest.fixture
def no_knobs(tmp_path, monkeypatch):
    """A folder of knobs without a knob."""
    monkeypatch.setattr(knobs, "__path__", [str(tmp_path)])
    return tmp_path


@pytest.fixture
def one_knob(no_knobs, monkeypatch):
    (no_knobs / "made_pin_memory.py").write_text(KNOB)
    monkeypatch.delitem(sys.modules, "hotlap.knobs.made_pin_memory", raising=False)


def test_without_knobs_it_says_so(hotlap, no_knobs):
    said = hotlap("knobs")
    assert said.code == 0 and said.out.startswith("This hotlap has no knobs")
    assert json.loads(hotlap("knobs", "--json", "-").out) == {"schema": 1, "knobs": []}
    said = hotlap("knobs", "show", "pin-memory")
    assert said.code == 2 and "no knob is called 'pin-memory'" in said.err


def test_a_list_and_one_card(hotlap, one_knob):
    assert hotlap("knobs").out.startswith("made-pin-memory  Pin host memory so that batches reach")
    said = hotlap("knobs", "show", "made-pin-memory")
    assert said.code == 0 and "What it does\n    Builds the DataLoader" in said.out


def test_json_tells_what_a_knob_declares(hotlap, one_knob):
    (knob,) = json.loads(hotlap("knobs", "show", "made-pin-memory", "--json", "-").out)["knobs"]
    assert (knob["knob"], knob["relieves"], knob["seam"], knob["numerics"]) == (
        "made-pin-memory", ["transfer-exposed"], "loader", "bitwise",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("show", "made-pin-memroy"), "did you mean 'made-pin-memory'?"),
        (("made-pin-memory",), "hotlap knobs show made-pin-memory"),
        (("show",), "knobs does not know 'show'"),
    ],
)
def test_a_slip_gets_a_remedy(hotlap, one_knob, words, told):
    said = hotlap("knobs", *words)
    assert said.code == 2 and told in said.err


def test_the_knobs_of_this_hotlap_are_listed(hotlap):
    listed = json.loads(hotlap("knobs", "--json", "-").out)["knobs"]
    assert all(each["card"].strip() and each["relieves"] for each in listed)
