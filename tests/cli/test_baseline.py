"""The words of `hotlap baseline`: what is refused before anything runs, and the exit codes of the gate."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hotlap.cli import main
from hotlap.facts.baseline import Baseline, MachineIdentity
from hotlap.facts.trial import Figures
from hotlap.judge.gain import check
from hotlap.pipeline import baseline

FIGURES = Figures(1000.0, "samples", 8.0, 2.0, 8.0, 512 << 20, 0.75, 0.0, 1.0, 0.0, 60)
SAVED = Baseline(
    "python train.py", MachineIdentity("cpu", 2, "x86_64"), "2026-11-16", (990.0, 1010.0, 1000.0), (1.0, 1.0, 1.0),
    FIGURES,
)  # fmt: skip


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit(9)")
    (tmp_path / "plan.yaml").write_text("hotlap: 1\nsettings: {num-workers: 2}\n")
    (tmp_path / "typo.yaml").write_text("hotlap: 1\nsettings: {num-worker: 2}\n")


@pytest.fixture
def measured(monkeypatch):
    """Stands for the runs: today's rate is what the test says."""

    def at(rate):
        after = replace(SAVED, rates=tuple(each * rate for each in SAVED.rates))

        def checked(job, path, tolerance, steps, told, under):
            assert job.shown == "python train.py --epochs 1"
            settings = {"plan": under.file, "settings": under.plan.settings}
            return check(SAVED, replace(after, **settings), tolerance)

        monkeypatch.setattr(baseline, "check", checked)

    return at


@pytest.mark.parametrize(
    ("rate", "tolerance", "code"), [(1.0, "5%", 0), (0.8, "5%", 4), (0.8, "30%", 0), (1.2, "0.05", 0)]
)
def test_the_gate_trips_beyond_the_tolerance(measured, capsys, rate, tolerance, code):
    measured(rate)
    words = ["baseline", "check", "--fail-if-slower", tolerance, "train.py", "--epochs", "1"]
    assert main(words) == code
    assert "Verdict" in capsys.readouterr().out


def test_json_alone_is_printed(measured, capsys):
    measured(0.8)
    assert main(["baseline", "check", "--json", "-", "train.py", "--epochs", "1"]) == 4
    said = capsys.readouterr()
    assert said.err == ""
    assert json.loads(said.out)["standing"] == "slower"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check", "train.py"], "there is no file hotlap-baseline.json"),
        (["check", "--file", "other.json", "train.py"], "there is no file other.json"),
        (["check", "--fail-if-slower", "much", "train.py"], "--fail-if-slower"),
        (["check"], "no command"),
        (["save", "--plan", "missing.yaml", "train.py"], "missing.yaml"),
        (["check", "--plan", "typo.yaml", "train.py"], "did you mean 'num-workers'?"),
        (["save", "missing.py"], "there is no script 'missing.py'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_runs(capsys, words, message):
    assert main(["baseline", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and "  -> " in said


def test_the_plan_is_passed_on_and_shown(measured, capsys):
    measured(1.0)
    assert main(["baseline", "check", "--plan", "./plan.yaml", "train.py", "--epochs", "1"]) == 0
    said = capsys.readouterr().out
    assert "Plan     plan.yaml: num-workers=2." in said
    assert "num-workers was not set and is 2." in said
