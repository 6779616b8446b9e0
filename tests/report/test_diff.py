"""Two profiles side by side: the figures, and what is said about them."""

from __future__ import annotations

import dataclasses

import pytest
from rich.cells import cell_len

from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Severity
from hotlap.facts.host import Gpu
from hotlap.facts.timeline import DatasetFacts, Gauge, LoaderFacts, OptimizerFacts, Runtime
from hotlap.report import diff as diff_sheet
from hotlap.report.advice import COMMANDS
from hotlap.report.diff import diff_view
from hotlap.report.locale import Phrases

EN = Phrases("en")
SLOW = {"data": 30.0, "forward": 10.0, "log": 1.0}
FAST = {"data": 3.0, "forward": 10.0, "checkpoint": 2.0}


def finding(cause: Cause, share: float, severity: Severity = Severity.WARNING) -> Finding:
    return Finding(cause, severity, share)


@pytest.fixture
def before(timeline_of, view_of):
    found = (finding(Cause.INPUT_STARVED, 0.7, Severity.CRITICAL), finding(Cause.HOST_SYNC, 0.05))
    return view_of(timeline_of(SLOW), diagnosis=Diagnosis(found))


@pytest.fixture
def after(timeline_of, view_of):
    found = (finding(Cause.CHECKPOINT_HEAVY, 0.13), finding(Cause.HOST_SYNC, 0.15))
    return view_of(timeline_of(FAST), diagnosis=Diagnosis(found))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden(views, golden, lang):
    golden(f"diff-{lang}.txt", diff_sheet.draw(diff_view(views["data-bound"], views["healthy"]), lang))


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_fits_100_columns(views, lang):
    for first in views.values():
        for second in views.values():
            text = diff_sheet.draw(diff_view(first, second), lang)
            assert max(cell_len(line) for line in text.splitlines()) <= 100


def test_figures_stand_as_pairs_with_their_ratio(before, after):
    diff = diff_view(before, after)
    data = diff["stages"]["data"]
    assert data["ms"]["before"] == pytest.approx(30, rel=0.01) and data["ms"]["ratio"] == pytest.approx(
        0.1, rel=0.01
    )
    assert data["share"]["after"] == pytest.approx(3 / 15, rel=0.01)
    assert diff["throughput"]["steps_per_s"]["ratio"] == pytest.approx(41 / 15, rel=0.01)
    assert diff["step"]["ms_median"]["ratio"] == pytest.approx(15 / 41, rel=0.01)
    assert diff["throughput"]["tokens_per_s"] == {"before": None, "after": None, "ratio": None}


def test_stages_that_went_or_came_have_no_ratio(before, after):
    diff = diff_view(before, after)
    assert list(diff["stages"]) == ["data", "forward", "log", "checkpoint"]
    rows = {row[0]: row for row in diff_sheet.stages(diff, EN).table.rows}
    assert rows["log"][3:5] == ("-", "-") and rows["log"][-1] == "-"
    assert rows["checkpoint"][1:3] == ("-", "-") and rows["checkpoint"][-1] == "-"
    assert rows["step"][-1] == "0.37x" and rows["step"][-2].startswith("-26")


def test_findings_that_went_came_and_stayed(before, after):
    found = diff_view(before, after)["findings"]
    assert [each["cause"] for each in found["gone"]] == ["input-starved"]
    assert [each["cause"] for each in found["appeared"]] == ["checkpoint-heavy"]
    (stayed,) = found["stayed"]
    assert (stayed["before"]["share"], stayed["after"]["share"]) == (0.05, 0.15)
    rows = diff_sheet.findings(diff_view(before, after), EN).table.rows
    assert rows[0] == ("gone", "input-starved", "critical, 70 % of each step", "-")


def test_nothing_found_and_nothing_different_is_said(timeline_of, view_of):
    view = view_of(timeline_of(SLOW))
    diff = diff_view(view, view)
    assert diff_sheet.findings(diff, EN).sentences == ("Neither run has findings.",)
    assert diff["differences"] == [] and diff_sheet.differences(diff, EN).table is None


def test_what_else_differs_is_listed_and_what_always_differs_is_not(timeline_of, view_of):
    loader = LoaderFacts(DatasetFacts("Windows", 100), 32, 0, None, False, False)
    seen = timeline_of(SLOW, loaders=(loader,), optimizers=(OptimizerFacts("Adam", 4, 10),), pid=1)
    changed = dataclasses.replace(
        seen,
        loaders=(dataclasses.replace(loader, num_workers=2),),
        runtime=Runtime(threads=2, autocast="bfloat16"),
        pid=2,
    )
    diff = diff_view(
        view_of(seen, ram_free_bytes=5, versions={"torch": "2.12"}),
        view_of(changed, ram_free_bytes=6, versions={"torch": "2.13", "numpy": "2.0"}),
    )
    assert {each["what"]: (each["before"], each["after"]) for each in diff["differences"]} == {
        "loader.num_workers": (0, 2),
        "runtime.autocast": (None, "bfloat16"),
        "version.torch": ("2.12", "2.13"),
        "version.numpy": (None, "2.0"),
    }
    assert diff["same_machine"]


@pytest.mark.parametrize("change", [{"cores": 8}, {"gpus": (Gpu("T4", 1),)}, {"cpu": "another"}])
def test_another_machine_is_warned_of(timeline_of, view_of, change):
    diff = diff_view(view_of(timeline_of(SLOW)), view_of(timeline_of(SLOW), **change))
    assert not diff["same_machine"] and "different machines" in " ".join(diff_sheet.caution(diff, EN))


def test_two_profiles_are_never_called_a_proof(before, after):
    said = " ".join(diff_sheet.caution(diff_view(before, after), EN))
    assert "are not a proof" in said and "Other processes used 0.05 cores before" in said
    assert ("hotlap compare" in said) is ("compare" in COMMANDS)
    assert "hotlap compare" in " ".join(diff_sheet.caution(diff_view(before, after), EN, {"compare"}))


def test_what_was_not_measured_is_not_compared(timeline_of, view_of):
    diff = diff_view(view_of(timeline_of(SLOW, gauges=())), view_of(timeline_of(SLOW)))
    assert diff["foreign_cpu"]["before"] is None
    assert "Other processes" not in " ".join(diff_sheet.caution(diff, EN))


def test_another_batch_size_makes_steps_no_measure(timeline_of, view_of):
    double = timeline_of(SLOW)
    double = dataclasses.replace(double, steps=dataclasses.replace(double.steps, samples=[1024] * 212))
    said = diff_sheet.change(diff_view(view_of(timeline_of(SLOW)), view_of(double)), EN)
    assert (
        "(2.00x)" in said[0] and "samples/s" in said[0] and said[2].startswith("A step holds 1,024 samples")
    )
    uncounted = dataclasses.replace(double, steps=dataclasses.replace(double.steps, samples=[-1] * 212))
    said = diff_sheet.change(diff_view(view_of(double), view_of(uncounted)), EN)
    assert "steps/s (1.00x)" in said[0] and len(said) == 2


def test_others_text_cannot_act_on_the_terminal(timeline_of, view_of):
    view = view_of(timeline_of(SLOW, gauges=(Gauge(10**12, 1, 1.0, 0.0, 0.0, 0.0),)), cpu="\x1b[2Jcpu")
    text = diff_sheet.draw(diff_view(view, view_of(timeline_of(SLOW))))
    assert "\x1b" not in text and "\\x1b[2Jcpu" in text
