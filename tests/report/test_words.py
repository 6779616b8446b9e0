"""A diagnosis in sentences."""

from __future__ import annotations

import pytest

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Interval, Severity
from hotlap.facts.timeline import Gauge
from hotlap.report import words
from hotlap.report.locale import Phrases

EN = Phrases("en")


def test_the_verdict_names_the_cause_and_its_share(views):
    sentence = words.verdict(views["data-bound"], EN)
    assert "Measured: +145 % (120 to 170) with cache-dataset=memory (item-cpu-bound)." in sentence
    assert words.verdict(views["multi-rank"], EN).endswith("At most 28 % of each step (straggler-rank).")


def test_a_cause_without_a_share_is_named_without_one(timeline_of, view_of):
    finding = Finding(Cause.MEMORY_GROWTH, Severity.WARNING, 0.0)
    view = view_of(timeline_of({"forward": 1.0}), diagnosis=Diagnosis((finding,)))
    assert "%" not in words.verdict(view, EN)


def test_notes_do_not_make_a_run_unhealthy_but_are_told(timeline_of, view_of):
    note = Finding(Cause.HOST_SYNC, Severity.NOTE, 0.01)
    view = view_of(timeline_of({"forward": 1.0}), diagnosis=Diagnosis((note,)))
    assert words.first(view) is None and words.verdict(view, EN).startswith("Healthy")
    assert words.also(view, EN) == "Also found: host-sync (at most 1.0 %)."
    assert words.others(view) == view["findings"]


def test_a_healthy_run_says_how_much_of_it_computes(views):
    assert words.why(views["healthy"], EN)[0].startswith("98 % of each step is computing")
    assert words.also(views["healthy"], EN) == ""


def test_no_data_stage_is_not_said_to_wait_for_nothing(timeline_of, view_of):
    assert "waiting for data" not in words.why(view_of(timeline_of({"forward": 1.0})), EN)[0]


@pytest.mark.parametrize(
    ("fix", "sentence"),
    [
        (Fix("num-workers", "4", interval=Interval(0.4, 0.6), measured_gain=0.5),
         "DataLoader(num_workers=4): measured +50 % (40 to 60)"),
        (Fix("num-workers", "4", measured_gain=0.5), "DataLoader(num_workers=4): measured +50 %"),
        (Fix("num-workers", "4", 0.5, Interval(0.4, 0.6)), "DataLoader(num_workers=4)"),
        (Fix("num-workers", "4"), "DataLoader(num_workers=4)"),
        (Fix("knob-of-a-plugin", "x"), "knob-of-a-plugin = x"),
    ],
)  # fmt: skip
def test_a_fix_says_what_to_change_and_what_it_would_bring(timeline_of, view_of, fix, sentence):
    finding = Finding(Cause.WORKERS_TOO_FEW, Severity.WARNING, 0.3, fixes=(fix,))
    view = view_of(timeline_of({"data": 1.0}), diagnosis=Diagnosis((finding,)))
    assert words.fix(view["findings"][0]["fixes"][0], EN) == sentence


def test_a_place_is_told_with_its_function(views):
    assert words.where(views["data-bound"]["findings"][0], EN) == "dataset.py:366, in __getitem__"
    assert words.where(views["multi-rank"]["findings"][0], EN) == ""


@pytest.mark.parametrize(
    ("function", "shown"),
    [
        ("Windows.load.<locals>.<listcomp>", "Windows.load"),
        ("main.<locals>.train_step", "main.train_step"),
        ("main.<locals>.<lambda>", "main"),
        ("<module>", ""),
        ("Dataset.__getitem__", "Dataset.__getitem__"),
    ],
)
def test_functions_are_called_as_their_author_calls_them(function, shown):
    assert words.readable(function) == shown


@pytest.mark.parametrize(("foreign", "told"), [(0.3, False), (0.6, True)])
def test_a_run_beside_busy_neighbours_says_so(timeline_of, view_of, foreign, told):
    looks = (Gauge(10**12, 1, 1.0, 0.0, foreign, 0.0),)
    reasons = words.why(view_of(timeline_of({"forward": 1.0}, gauges=looks)), EN)
    assert ("other processes used 0.60 of the 2 cores" in reasons[-1]) is told
