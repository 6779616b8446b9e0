"""What is tried next: by prediction, within what the user allows, and nothing twice."""

from __future__ import annotations

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.plan import Plan
from hotlap.ports.knob import Numerics
from hotlap.propose.search import Wish, candidates
from hotlap.seams.catalogue import all_knobs

KNOBS = all_knobs()
ALL = Wish(allowed=frozenset(Numerics))


def finding(*fixes, severity=Severity.CRITICAL, share=0.6):
    return Finding(Cause.ITEM_CPU_BOUND, severity, share, fixes=tuple(fixes))


def fix(knob, setting, gain):
    return Fix(knob, setting, gain, Interval(gain / 2, gain * 2))


@pytest.fixture
def offered():
    """The candidates of a diagnosis on a host where no knob offers anything by itself."""
    silent = {key: _Silent(knob) for key, knob in KNOBS.items()}

    def offer(*findings, plan=None, wish=ALL, tried=()):
        found = candidates(Diagnosis(findings), None, None, silent, plan or Plan(), wish, set(tried))
        return [(each.knob, each.setting) for each in found]

    return offer


class _Silent:
    def __init__(self, knob):
        self.id, self.values, self.numerics = knob.id, knob.values, knob.numerics

    def ceiling(self, *_):
        return 0.0

    def settings(self, *_):
        return ()


def test_the_best_prediction_comes_first_with_settings_as_the_knob_reads_them(offered):
    found = offered(finding(fix("num-workers", "2", 0.4), fix("cache-dataset", "memory", 3.0)))
    assert found == [("cache-dataset", "memory"), ("num-workers", 2)]


def test_what_was_tried_or_is_set_is_not_tried_again(offered):
    both = finding(fix("num-workers", "2", 0.4), fix("cache-dataset", "memory", 3.0))
    assert offered(both, tried=[("cache-dataset", "memory")]) == [("num-workers", 2)]
    assert offered(both, plan=Plan({"num-workers": 2})) == [("cache-dataset", "memory")]


def test_numerics_that_are_not_allowed_are_left_out(offered):
    change = finding(fix("precision", "bf16-mixed", 0.5), fix("batch-size", "64", 0.5))
    assert offered(change, wish=Wish()) == []
    assert offered(change, wish=Wish(allowed=frozenset({Numerics.ROUNDING}))) == [("precision", "bf16-mixed")]


def test_the_batch_may_be_kept(offered):
    change = finding(fix("batch-size", "64", 0.5), fix("num-workers", "2", 0.1))
    assert offered(change, wish=Wish(allowed=frozenset(Numerics), keep_batch=True)) == [("num-workers", 2)]


def test_a_note_that_promises_next_to_nothing_is_not_worth_a_trial(offered):
    assert offered(finding(fix("num-workers", "2", 0.02), severity=Severity.NOTE)) == []


def test_a_value_that_the_knob_does_not_take_is_passed_over(offered):
    assert offered(finding(fix("compile", "sideways", 0.5))) == []


def test_for_memory_only_knobs_that_save_memory_are_tried(offered):
    change = finding(fix("num-workers", "2", 0.9), fix("grad-checkpointing", "true", 0.1))
    assert offered(change, wish=Wish("memory", frozenset(Numerics))) == [("grad-checkpointing", True)]
