"""The progress of a search: trial, setting, ms a step, gain and time left in a line that does not wrap."""

from __future__ import annotations

import re

from hotlap.cli.tune import WIDTH, Teller, verdict_line
from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Gain, KnobVerdict, Ruling
from hotlap.search.candidates import SearchBudget

SLOW = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60)
FAST = Figures(6000.0, "samples", 80.0, 2.0, 512.0, 1 << 30, 0.97, 9.0, 3.0, 0.0, 60)
MANY = Plan({"cache-dataset": "memory", "compile": "default", "persistent-workers": True})


def test_every_trial_is_held_against_the_first():
    said: list[str] = []
    teller = Teller(SearchBudget(seconds=300.0), said.append)
    teller.trial(Trial(1, Plan(), Status.DONE, 31.0, SLOW))
    teller.trial(Trial(2, MANY, Status.DONE, 9.4, FAST))
    teller.trial(Trial(3, MANY, Status.HUNG, 120.0, None, "no step for 120 s"))
    assert re.fullmatch(
        r"trial   1  the original script +800 ms/step +600 samples/s +1\.00x +31 s  (300|299) s left", said[0]
    )
    assert "80.0 ms/step" in said[1] and "10.00x" in said[1] and "..." in said[1]
    assert "hung" in said[2] and "x " not in said[2]
    assert max(map(len, said)) <= WIDTH


def test_of_a_budget_of_trials_those_left_are_told():
    said: list[str] = []
    teller = Teller(SearchBudget(trials=2), said.append)
    for number in (1, 2, 3):
        teller.trial(Trial(number, Plan(), Status.DONE, 3.0, SLOW))
    assert [line.split("  ")[-1] for line in said] == ["1 left", "0 left", "0 left"]


def test_a_verdict_in_one_line_however_long_its_reason():
    kept = KnobVerdict("compile", "default", Ruling.KEEP, Gain(0.25, Interval(0.2, 0.3)))
    assert verdict_line(kept) == "  keep: compile=default, gain +25%"
    dropped = KnobVerdict("precision", "bf16", Ruling.DROP, None, reason="it cannot act: " + "x" * 200)
    assert verdict_line(dropped).startswith("  drop: precision=bf16 (it cannot act: xx")
    assert len(verdict_line(dropped)) == WIDTH
