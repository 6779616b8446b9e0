"""A plan with a mistake is refused before anything starts, with the nearest thing that is right."""

from __future__ import annotations

import pytest

from hotlap.errors import HotlapError
from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan, Proof
from hotlap.plan.catalogue import checked, from_words
from hotlap.plan.file import plan_text, read_plan
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Seam
from hotlap.ports.values import Choice, Flag, Share, Whole


def knob(name, values, excludes=()):
    body = {"id": name, "values": values, "excludes": frozenset(excludes), "seam": Seam.PROCESS}
    body |= {"numerics": Numerics.BITWISE, "relieves": frozenset()}
    body |= dict.fromkeys(("settings", "ceiling", "apply"), lambda *_: ())
    return type(name, (Knob,), body)()


KNOBS = {
    each.id: each
    for each in (
        knob("num-workers", Whole(0, 64)),
        knob("pin-memory", Flag()),
        knob("precision", Choice(("32", "16-mixed", "bf16-mixed"))),
        knob("compile", Choice(("off", "default")), excludes=("debug",)),
        knob("debug", Flag()),
        knob("limit-validation", Share()),
    )
}


def refusal(act, *arguments):
    with pytest.raises(HotlapError) as caught:
        act(*arguments)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_values_are_read_as_their_knobs_mean_them():
    given = {
        "num-workers": "4",
        "pin-memory": "on",
        "precision": 32,
        "compile": False,
        "limit-validation": "5%",
    }
    assert checked(given, KNOBS) == {
        "num-workers": 4,
        "pin-memory": True,
        "precision": "32",
        "compile": "off",
        "limit-validation": 0.05,
    }


@pytest.mark.parametrize(
    ("settings", "what", "remedy"),
    [
        ({"num_workers": 4}, "no knob is called 'num_workers'", "did you mean 'num-workers'?"),
        ({"num-workers": 65}, "num-workers: the value '65' is not allowed", "from 0 to 64"),
        ({"num-workers": True}, "num-workers: the value 'True' is not allowed", "from 0 to 64"),
        ({"num-workers": None}, "num-workers: the value 'None' is not allowed", "from 0 to 64"),
        ({"precision": "bf16"}, "precision: the value 'bf16' is not allowed", "did you mean 'bf16-mixed'?"),
        ({"limit-validation": 0}, "limit-validation: the value '0' is not allowed", "above 0"),
        ({7: 1}, "no knob is called '7'", "known are: "),
        (
            {"debug": True, "compile": "default"},
            "compile and debug exclude each other",
            "leave out compile or debug",
        ),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_right(settings, what, remedy):
    told = refusal(checked, settings, KNOBS)
    assert what in told
    assert remedy in told


def test_settings_that_are_off_exclude_nothing():
    assert checked({"debug": True, "compile": "off"}, KNOBS) == {"debug": True, "compile": "off"}
    assert checked({"debug": False, "compile": "default"}, KNOBS)


def test_words_of_the_command_line_are_settings_and_the_last_one_counts():
    assert from_words(["num-workers=4", "num-workers = 2"], KNOBS) == {"num-workers": 2}
    assert "write --set num-workers=VALUE: a whole number" in refusal(from_words, ["num-workers"], KNOBS)
    assert "did you mean 'pin-memory'?" in refusal(from_words, ["pin-memroy"], KNOBS)


@pytest.mark.parametrize(
    ("text", "what", "remedy"),
    [
        ("", "a plan is a mapping, not nothing", "hotlap: 1"),
        ("- num-workers", "a plan is a mapping, not a list", "hotlap: 1"),
        ("settings: {num-workers: 4}", "which schema", "hotlap: 1"),
        ("hotlap: 2\nsettings: {}", "schema 2, this hotlap reads up to 1", "update hotlap"),
        ("hotlap: yes", "`hotlap: True` is no version", "`hotlap: 1`"),
        ("hotlap: 1\nsettings: [num-workers]", "settings are a mapping, not a list", "`knob: value`"),
        ("hotlap: 1\nsetings: {}", "no part of a plan is called 'setings'", "did you mean 'settings'?"),
        ("hotlap: 1\nsettings: {pin-memroy: true}", "'pin-memroy'", "did you mean 'pin-memory'?"),
        ("hotlap: 1\nsettings:\n  debug: on\n  debug: off", "line 4: 'debug' stands there twice", "mend"),
        ("hotlap: 1\nsettings: {", "not readable YAML", "mend that line"),
        ("hotlap: 1\nproof: {gain: much}", "proof.gain should be float", ""),
    ],
)
def test_a_file_that_is_no_plan_is_refused_by_name(file, text, what, remedy):
    path = file(text)
    told = refusal(read_plan, path, KNOBS)
    assert what in told
    assert remedy in told
    assert str(path) in told or "proof" in told


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path):
    assert "there is no plan" in refusal(read_plan, tmp_path / "gone.yaml", KNOBS)
    assert "cannot be read" in refusal(read_plan, tmp_path, KNOBS)
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xfa")
    assert "not readable YAML" in refusal(read_plan, tmp_path / "bytes.yaml", KNOBS)


def test_a_plan_comes_back_as_it_was_written_with_reasons_as_comments(file):
    proof = Proof(0.4, Interval(0.3, 0.5), "same", "a host", {"torch": "2.13"})
    settings = {"num-workers": 4, "precision": "32", "compile": "off", "pin-memory": True}
    plan = Plan(settings, proof, {"num-workers": "half of 8 cores: " + "so it is " * 20})
    text = plan_text(plan)
    assert all(len(line) <= 100 for line in text.splitlines())
    above = text.splitlines()[: text.splitlines().index("  num-workers: 4")]
    assert above[-1].startswith("  # ") and above[2].startswith("  # half of 8 cores")
    again = read_plan(file(text), KNOBS)
    assert (again.settings, again.proof) == (settings, proof)


def test_an_empty_plan_is_a_plan(file):
    assert read_plan(file(plan_text(Plan())), KNOBS) == Plan()
    assert read_plan(file("hotlap: 1\nsettings:\n"), KNOBS) == Plan()
