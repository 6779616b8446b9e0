"""What a search tells: the verdict with its interval, the guard, and why each setting was kept or not."""

from __future__ import annotations

import json

from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures
from hotlap.facts.verdict import Gain, Guarded, Ruling, Sameness, Tuning, Verdict
from hotlap.report.tuned import text, trial_line, tuning_view

SLOW = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60)
FAST = Figures(6000.0, "samples", 80.0, 2.0, 512.0, 1 << 29, 0.97, 0.0, 3.0, 0.0, 60)
KEPT = Verdict(
    "cache-dataset",
    "memory",
    Ruling.KEEP,
    Gain(9.0, Interval(8.0, 10.5), 4),
    8.5,
    Interval(4.0, 12.0),
    (2.0, 4.0),
    Guarded(Sameness.SAME, "bitwise", "all bits are equal after 24 steps", 24, 1),
)
DROPPED = Verdict(
    "compile", "default", Ruling.DROP, Gain(0.01, Interval(-0.02, 0.02)), reason="it brings less than 3 %"
)


def tuning(**changes):
    plain = {
        "baseline": SLOW,
        "tuned": FAST,
        "plan": Plan({"cache-dataset": "memory"}),
        "gain": Gain(9.0, Interval(8.0, 10.5), 8),
        "guard": KEPT.guard,
        "verdicts": (KEPT, DROPPED),
        "trials": 12,
        "seconds": 130.0,
        "ended": "nothing is left that promises a gain",
    }
    return Tuning(**{**plain, **changes})


def test_the_verdict_the_guard_and_the_next_command_come_first():
    lines = text(tuning(), ".hotlap/tune/train", "train.py --epochs 1").splitlines()
    assert lines[0] == "Verdict  10 times (9 to 11.5) as fast: 600 to 6,000 samples/s."
    assert lines[2].startswith("Guard    same: all bits")
    assert "Next     hotlap run --plan .hotlap/tune/train/plan.yaml train.py --epochs 1" in lines


def test_measured_predicted_and_promised_stand_side_by_side():
    row = next(line for line in text(tuning(), "x", "y").splitlines() if line.startswith("cache-dataset"))
    assert "+900% (+800% to +1050%)" in row
    assert "+850%" in row
    assert "+200% to +400%" in row


def test_a_setting_that_was_dropped_says_why():
    lines = text(tuning(), "x", "y").splitlines()
    index = next(index for index, line in enumerate(lines) if line.startswith("compile=default"))
    assert lines[index + 1].strip() == "it brings less than 3 %"


def test_nothing_gained_is_said_plainly():
    shown = text(tuning(plan=Plan(), tuned=SLOW, gain=None, guard=None, verdicts=(DROPPED,)), "x", "y")
    assert "nothing that was tried makes this job faster" in shown
    assert "hotlap run" not in shown


def test_settings_alone_and_together():
    alone = {"cache-dataset": Gain(9.0, Interval(8.0, 10.0)), "num-workers": Gain(0.5, Interval(0.4, 0.6))}
    shown = text(tuning(alone=alone), "x", "y")
    assert "each kept setting alone" in shown
    assert "all together" in shown


def test_lines_fit_and_the_facts_are_json():
    assert all(len(line) <= 120 for line in text(tuning(), "x", "y").splitlines())
    assert json.loads(json.dumps(tuning_view(tuning(), "x", "y")))["verdicts"][0]["ruling"] == "keep"


def test_a_trial_in_one_line():
    assert trial_line(3, {}, "5,000 samples/s", 4.2, "") == (
        "trial   3  5,000 samples/s                   4 s  the script as it is"
    )
