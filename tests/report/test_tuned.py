"""What a search tells: verdict, guard, ablation and reasons; in the terminal, as a page, as JSON, in both languages."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from html import unescape

import pytest
from rich.cells import cell_len

from hotlap.facts.diagnosis import Interval
from hotlap.facts.host import Host
from hotlap.facts.job import Job
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures, Status, Trial
from hotlap.facts.verdict import Gain, Guarded, KnobVerdict, Ruling, Sameness, Tuning
from hotlap.report.renderers.html import Html
from hotlap.report.renderers.json import Json
from hotlap.report.renderers.markdown import Markdown
from hotlap.report.renderers.terminal import draw
from hotlap.report.tuned import Searched, tuning_view

SLOW = Figures(600.0, "samples", 800.0, 700.0, 512.0, 1 << 29, 0.1, 0.0, 3.0, 0.0, 60)
FAST = Figures(6000.0, "samples", 80.0, 2.0, 512.0, 1 << 30, 0.97, 9.0, 3.0, 0.0, 60)
SAME = Guarded(
    Sameness.SAME,
    "bitwise",
    "batches, losses, parameters and random numbers are bit-equal after 24 steps",
    24,
    1,
)
CACHED = KnobVerdict(
    "cache-dataset",
    "memory",
    Ruling.KEEP,
    Gain(7.0, Interval(6.5, 7.5), 4),
    (3.0, 7.0),
    SAME,
)
COMPILED = KnobVerdict(
    "compile",
    "default",
    Ruling.KEEP,
    Gain(0.25, Interval(0.2, 0.3), 4),
    (0.1, 0.4),
    SAME,
    break_even_steps=1250,
)
DROPPED = KnobVerdict(
    "num-workers",
    2,
    Ruling.DROP,
    Gain(-0.4, Interval(-0.45, -0.3)),
    (2.0, 4.0),
    reason="it is slower",
)
WRONG = KnobVerdict(
    "precision",
    "bf16",
    Ruling.DROP,
    Gain(0.5, Interval(0.4, 0.6)),
    (0.2, 1.0),
    reason="the guard says different: after 24 steps the parameters are 80% of their way apart",
)
NOISE = "the gain is within the noise"
STAGES = {
    "data": 700.0,
    "forward": 40.0,
    "backward": 55.0,
    "optimizer": 5.0,
    "log": 0.0002,
}  # the last is too little for a row
HOST = Host("Linux 6.1", "AMD EPYC 7B13", 2, 1, 24 << 30, 20 << 30, None, None, "fork")
PLAN = Plan({"cache-dataset": "memory", "compile": "default"})


def trial(number, plan, figures, stages):
    return Trial(number, plan, Status.DONE, 9.0, figures, stages=stages)


TRIALS = (
    trial(1, Plan(), SLOW, STAGES),
    trial(2, PLAN, FAST, {**STAGES, "data": 2.0, "forward": 20.0}),
    Trial(3, Plan({"num-workers": 2}), Status.DEAD, 4.0, reason="RuntimeError: boom"),
    trial(4, Plan(), replace(SLOW, throughput=620.0), STAGES),
)


@pytest.fixture
def searched():
    def made(**changes):
        plain = {
            "baseline": SLOW,
            "tuned": FAST,
            "plan": PLAN,
            "gain": Gain(9.0, Interval(8.0, 10.5), 8),
            "guard": SAME,
            "verdicts": (CACHED, DROPPED, replace(DROPPED, reason=NOISE), COMPILED, WRONG),
            "alone": {
                "cache-dataset": Gain(7.1, Interval(6.6, 7.6)),
                "compile": Gain(0.02, Interval(-0.01, 0.05)),
            },
            "trials": 12,
            "seconds": 130.0,
            "ended": "all that could save 3 % was tried",
        }
        job = Job(("/usr/bin/python3", "train.py", "--epochs", "1"), "/home/ada/printer", "train")
        tuning = Tuning(**{**plain, **changes})
        return tuning_view(Searched(tuning, job, HOST, ".hotlap/tune/train", TRIALS))

    return made


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_golden(searched, golden, lang):
    text = draw(searched(), lang)
    assert max(cell_len(line) for line in text.splitlines()) <= 100
    golden(f"tuned-{lang}.txt", text)


def test_nothing_gained_is_said_plainly(searched):
    shown = draw(searched(plan=Plan(), tuned=SLOW, gain=None, guard=None, verdicts=(DROPPED,), alone={}))
    assert "Nothing that was tried makes this job faster than 610 samples/s." in shown
    assert "hotlap run" not in shown and "all together" not in shown
    assert "it is slower" in shown


def test_an_interrupted_search_claims_no_proof(searched):
    shown = draw(searched(gain=None, guard=None, ended="interrupted: the best so far is kept"))
    assert "ended before the winner was measured once more" in shown
    assert "was not compared with the original script" in shown


@pytest.mark.parametrize(
    ("lang", "phrase"),
    [("en", "measured by experiments in a running process"), ("zh", "在运行中的进程内以实验测量")],
)
def test_a_gain_that_experiments_have_measured_is_marked(searched, lang, phrase):
    view = searched(verdicts=(CACHED, replace(COMPILED, live=True)))
    shown = "".join(line.strip() + " " * (lang == "en") for line in draw(view, lang).splitlines())
    assert re.search(f"compile=default[:：].*{phrase}", shown)
    assert phrase not in draw(searched(), lang)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_what_is_not_allowed_shows_its_gain_and_the_option(searched, lang):
    barred = KnobVerdict(
        "debug-mode-off",
        True,
        Ruling.DROP,
        Gain(3.0, Interval(2.8, 3.2)),
        reason="changes rounding: add --allow rounding",
        live=True,
    )
    view = searched(verdicts=(CACHED, barred), ended="what is left changes the numbers: add --allow rounding")
    for shown in (draw(view, lang), unescape(Html().render(view, lang))):
        assert "debug-mode-off=True" in shown and "+300 % (+280..+320)" in shown
        assert shown.count("--allow rounding") == 2


def test_the_verdict_of_the_last_try_counts(searched):
    reasons = {each["knob"]: each["reason"] for each in searched()["rejected"]}
    assert reasons["num-workers"] == NOISE


def test_throughput_is_the_middle_of_all_trials(searched):
    assert searched()["throughput"] == {"counts": "samples", "before": 610.0, "after": 6000.0}


def test_what_a_setting_brought_is_told_and_its_gain_is_that_of_both_alone(searched):
    both = Plan({"batched-fetch": True, "cache-dataset": "memory"})
    cached = replace(CACHED, beside={"batched-fetch": True})
    view = searched(plan=both, verdicts=(cached,), alone={})
    assert view["ablation"]["settings"][0]["alone"]["value"] == 7.0
    assert "cache-dataset=memory brought batched-fetch=True with it" in draw(view)
    idle = searched(plan=Plan({"cache-dataset": "memory"}), verdicts=(cached,), alone={})
    assert "brought" not in draw(idle), "it could not act"


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_tells_all_of_it_and_runs_nothing(searched, lang):
    page = unescape(Html().render(searched(), lang))
    assert "<script" not in page and "script-src 'none'" in page
    assert not re.search(r"(?:src|href)=\"(?!#)", page)
    for told in ("cache-dataset=memory", "+700 % (+650..+750)", "+300..+700 %", "1,250", "precision=bf16"):
        assert told in page, told
    assert page.count('class="strip"') == 2


def test_the_page_shows_foreign_words_as_words(searched):
    page = Html().render(searched(ended="<script>alert(1)</script>"))
    assert "<script>alert" not in page


def test_markdown_and_json(searched):
    text = Markdown().render(searched())
    assert text.startswith("### hotlap: 10.00x as fast")
    assert "| `compile=default` | +25 % (+20..+30)" in text
    plain = json.loads(Json().render(searched()))
    assert (plain["schema"], plain["kind"], plain["verdicts"][0]["ruling"]) == (1, "tuning", "keep")


def test_a_long_command_can_be_copied_into_a_shell(searched):
    view = searched()
    view["job"]["argv"] = ["python", "train.py", "--data", "a b", *["--option=" + "x" * 30] * 4]
    shown = draw(view)
    block = shown.split("Next     ")[1].split("hotlap report")[0]
    words = shlex.split(block.replace("\\\n", ""))  # as a shell joins lines
    assert words[:4] == ["hotlap", "run", "--plan", ".hotlap/tune/train/plan.yaml"]
    assert words[4:] == view["job"]["argv"][1:]


def test_a_setting_that_was_left_out_in_the_end_is_no_longer_kept(searched):
    needless = replace(CACHED, ruling=Ruling.DROP, gain=None, reason="the plan is as fast without it by now")
    view = searched(verdicts=(CACHED, COMPILED, needless))
    assert [each["knob"] for each in view["ablation"]["settings"]] == ["compile"]
    assert [each["reason"] for each in view["rejected"]] == [needless.reason]
