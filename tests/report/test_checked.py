"""A check against a baseline in words, in both languages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from hotlap.facts.baseline import Baseline, MachineIdentity
from hotlap.facts.trial import Figures
from hotlap.judge.gain import check
from hotlap.report.checked import checked_view, saved_lines, saved_view
from hotlap.report.locale import Phrases
from hotlap.report.renderers.terminal import draw

FIGURES = Figures(1000.0, "samples", 8.0, 2.0, 8.0, 512 << 20, 0.75, 0.0, 1.0, 0.0, 60)
BEFORE = Baseline(
    "python train.py",
    MachineIdentity("AMD EPYC 7B13", 2, "x86_64"),
    "2026-11-02",
    (990.0, 1000.0, 1010.0),
    (10.0, 10.1, 9.9),
    FIGURES,
    {"torch": "2.12.0", "python": "3.11.2"},
)
AFTER = replace(
    BEFORE,
    saved="2026-11-16",
    rates=(790.0, 800.0, 810.0),
    figures=replace(FIGURES, throughput=800.0, step_ms=10.0),
    versions={"torch": "2.13.0", "python": "3.11.2"},
)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden(golden, lang):
    text = draw(checked_view(check(BEFORE, AFTER, 0.05)), lang)
    assert max(cell_len(line) for line in text.splitlines()) <= 100
    golden(f"checked-{lang}.txt", text)


@pytest.mark.parametrize(("lang", "plan"), [("en", "Plan fast.yaml: "), ("zh", "fast.yaml：")])
def test_the_plan_is_shown_with_what_changed_in_it_and_what_could_not_act(lang, plan):
    before = replace(BEFORE, plan="fast.yaml", settings={"num-workers": 2, "pin-memory": True})
    after = replace(
        AFTER,
        plan="fast.yaml",
        settings={"num-workers": 4, "log-every": 50},
        refused={"log-every": "the script writes its log by itself"},
    )
    view = checked_view(check(before, after, 0.05))
    assert view["settings_changed"] == {
        "num-workers": [2, 4],
        "pin-memory": [True, None],
        "log-every": [None, 50],
    }
    shown = " ".join(draw(view, lang).split())
    assert f"{plan}num-workers=4, log-every=50" in shown
    assert "the script writes its log by itself" in shown
    assert lang == "zh" or "num-workers was 2 and is 4. pin-memory was True and is not set." in shown
    assert "under fast.yaml" in saved_lines(after, "b.json", Phrases())[0]
    assert saved_lines(after, "b.json", Phrases())[1].startswith("log-every=50 could not act")


def test_a_machine_whose_pace_is_not_known_is_told():
    view = checked_view(check(replace(BEFORE, paces=()), AFTER, 0.05))
    assert "could not be measured" in draw(view)


def test_a_version_that_changed_is_told_and_another_is_not():
    shown = draw(checked_view(check(BEFORE, AFTER, 0.05)))
    assert "torch was 2.12.0 and is 2.13.0." in shown
    assert "3.11.2" not in shown


def test_a_saved_baseline_says_where_it_is_and_whether_others_disturbed_it():
    assert saved_lines(BEFORE, "b.json", Phrases()) == [
        "b.json: 1,000 samples/s in 3 runs on 2 cores (AMD EPYC 7B13), no GPU. "
        "Commit it, and check: hotlap baseline check"
    ]
    loud = replace(BEFORE, figures=replace(FIGURES, foreign_cores=1.2))
    assert "Others used up to 1.20 cores" in saved_lines(loud, "b.json", Phrases())[1]
    assert saved_view(BEFORE, "b.json")["baseline"]["rates"] == [990.0, 1000.0, 1010.0]
