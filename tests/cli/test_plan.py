"""`hotlap plan`, `hotlap knobs` and what `hotlap run` refuses: in this process, without a script that runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from hotlap.facts import codec
from hotlap.facts.arrow import read_timelines
from hotlap.facts.diagnosis import Cause, Diagnosis, Finding, Fix, Severity
from hotlap.plan.catalogue import all_knobs
from hotlap.plan.file import read_plan


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A script in a folder of its own, without a profile; were it started, it would leave a trace."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOTLAP_PROBE", raising=False)
    (tmp_path / "train.py").write_text("open('started', 'w').close()\n")
    return tmp_path


def test_a_plan_is_yaml_with_the_reason_of_each_line_above_it(script, hotlap):
    said = hotlap("plan", "--preset", "speed", "--allow", "rounding", "train.py", "--epochs", "1")
    assert said.code == 0, said.err
    (script / "plan.yaml").write_text(said.out)
    plan = read_plan("plan.yaml")
    assert plan.settings["fused-optimizer"] == "fused"
    lines = said.out.splitlines()
    assert "no profile of this job is stored" in lines[0]
    for key in plan.settings:
        at = next(index for index, line in enumerate(lines) if line.startswith(f"  {key}:"))
        assert lines[at - 1].startswith("  # ")
    assert not (script / "started").exists()


def test_what_a_preset_leaves_out_is_told_with_the_word_for_it(script, hotlap):
    said = hotlap("plan", "train.py")
    assert "fused-optimizer" not in yaml.safe_load(said.out)["settings"]
    assert "left out, as they change the rounding: " in said.err
    assert "fused-optimizer" in said.err and "--allow rounding" in said.err


def test_settings_that_are_asked_for_by_name_override_the_preset(script, hotlap):
    said = hotlap(
        "plan", "--set", "fused-optimizer=foreach", "--set", "num-workers=3", "--json", "-", "train.py"
    )
    facts = json.loads(said.out)
    assert facts["settings"].items() >= {"fused-optimizer": "foreach", "num-workers": 3}.items()
    assert facts["reasons"]["num-workers"] == "asked for by --set"


def test_a_stored_profile_of_the_script_is_used(stored, hotlap, change_timeline):
    """Where its items draw random numbers, workers change what is trained."""
    (timeline,) = read_timelines(stored / "timeline.arrow")
    fix = Fix("num-workers", "2", measured_gain=0.5)
    finding = Finding(Cause.ITEM_CPU_BOUND, Severity.CRITICAL, 0.6, fixes=(fix,))
    codec.write_json(stored / "diagnosis.json", Diagnosis((finding,)))
    for draws, allowed in ((True, ""), (False, ""), (True, "statistical")):
        dataset = replace(timeline.loaders[0].dataset, draws_random=draws)
        change_timeline(loaders=(replace(timeline.loaders[0], dataset=dataset),))
        said = hotlap("plan", "--allow", allowed, "train.py", "--other", "options")
        assert said.code == 0, said.err
        assert f"of the profile in .hotlap/runs/{stored.name}" in said.out
        left_out = "as they change what is trained: num-workers" in said.err
        assert (
            left_out == (draws and not allowed) == ("num-workers" not in yaml.safe_load(said.out)["settings"])
        )
    assert "  # the profile found item-cpu-bound: 50 % more throughput measured\n  num-workers: 2" in said.out


@pytest.mark.parametrize(
    ("words", "what", "remedy"),
    [
        (("run", "--set", "num-wrokers=4", "train.py"), "no knob is called 'num-wrokers'", "'num-workers'"),
        (("run", "--set", "num-workers=many", "train.py"), "'many' is not allowed", "a whole number"),
        (("run", "--plan", "gone.yaml", "train.py"), "there is no plan gone.yaml", "hotlap plan"),
        (("run", "--plan", "a", "--preset", "speed", "train.py"), "exclude each other", "give one"),
        (("run", "--allow", "rounding", "train.py"), "there is none", "--preset"),
        (("run", "--skip-bad-samples", "-1", "train.py"), "--skip-bad-samples is -1", "from 0 on"),
        (("run", "--json", "no/where.json", "train.py"), "cannot be written", "another file"),
        (("run",), "there is no command to run", "hotlap run train.py"),
        (("run", "trian.py"), "there is no script 'trian.py'", "did you mean 'train.py'?"),
        (("plan", "--preset", "sped", "train.py"), "no preset is called 'sped'", "'speed'"),
        (("plan", "--allow", "roundign", "train.py"), "'roundign'", "'rounding'"),
        (("plan", "--run", "none", "train.py"), "there is no run 'none'", "hotlap profile"),
        (("knobs", "show", "pin-memroy"), "'pin-memroy'", "'pin-memory'"),
        (("knobs", "pin-memory"), "'pin-memory' is not understood", "hotlap knobs show"),
        (("knobs", "--for"), "there is no command to run", "hotlap knobs --for train.py"),
    ],
)
def test_what_is_wrong_is_refused_before_the_script_starts(script, hotlap, words, what, remedy):
    said = hotlap(*words)
    assert (said.code, said.out) == (2, "")
    assert what in said.err
    assert remedy in said.err
    assert not (script / "started").exists()
    assert not (script / ".hotlap").exists()


PROMISES = {
    "batch-size": "+100..+200 %",
    "precision": "+20..+100 %",
    "num-workers": "+200..+400 %",
    "compile": "+10..+40 %",
    "log-every": "+5..+10 %",
    "validate-every": "+10..+20 %",
    "monitor-budget": "+5..+15 %",
    "max-length": "+20..+40 %",
}


@pytest.mark.parametrize("knob", PROMISES)
def test_a_card_says_what_guides_promise(hotlap, knob):
    assert f"typical claim {PROMISES[knob]}\n" in hotlap("knobs", "show", knob).out


def test_every_knob_is_listed_with_what_it_takes(script, hotlap):
    said = hotlap("knobs", "--json", "knobs.json")
    listed = json.loads((script / "knobs.json").read_text())["knobs"]
    assert {each["knob"] for each in listed} == set(all_knobs())
    assert all(len(line) <= 100 for line in said.out.splitlines())
    for each in listed:
        assert each["knob"] in said.out
        assert each["card"].splitlines()[0] and each["values"]


def test_one_knob_is_shown_with_its_card(script, hotlap):
    said = hotlap("knobs", "show", "num-workers")
    for section in ("What it does", "When it helps", "What it costs", "Numerics"):
        assert section in said.out
    assert "[bitwise; at the loader; a whole number from 0 to" in said.out
    assert "relieves " in said.out
