"""`hotlap demo`: the commands that it shows are commands, and its folder is its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hotlap.cli import build_parser, demo, main
from hotlap.cli.compare import split
from hotlap.errors import UsageError


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_it_shows_the_whole_arrow():
    names = [words[:2] for words in demo.commands(Path())]
    assert names == [
        ["python", "-m"],
        ["hotlap", "profile"],
        ["hotlap", "tune"],
        ["hotlap", "compare"],
        ["hotlap", "report"],
    ]


def test_its_commands_are_commands():
    """As far as one can tell without training: options exist, and plans and commands are told apart."""
    for words in demo.commands(Path())[1:]:
        own = words[1 : words.index("-m")] if "-m" in words else words[1:]
        if words[1] == "compare":
            plans, jobs = split(words[4:])
            assert plans == ["none", ".hotlap/tune/train/plan.yaml"] and jobs[0][0] == "-m"
            own = words[1:4]
        build_parser().parse_args(own)


@pytest.mark.parametrize("fails_at", [None, "tune"])
def test_commands_run_in_the_folder_and_the_page_is_named_at_the_end(monkeypatch, capsys, fails_at):
    ran = []

    def call(words, cwd, env):
        ran.append((words[3] if words[2] == "hotlap" else "make_data", cwd))
        return 7 if fails_at in words else 0

    monkeypatch.setattr(subprocess, "call", call)
    code = main(["demo"])
    said = capsys.readouterr()
    assert {cwd for _, cwd in ran} == {Path("hotlap-demo")}
    if fails_at:
        assert code == 2 and "hotlap tune ended with 7" in said.err
        assert [name for name, _ in ran] == ["make_data", "profile", "tune"]
        return
    assert code == 0
    page = Path("hotlap-demo/.hotlap/tune/train/report.html").resolve().as_uri()
    assert said.out.splitlines()[-1] == f"The page: {page}"


def test_what_an_earlier_demo_measured_goes_and_its_data_stay(tmp_path):
    folder = demo.prepared(Path("hotlap-demo"))
    (folder / ".hotlap/tune").mkdir(parents=True)
    (folder / "data_simulation_benchy").mkdir()
    demo.prepared(folder)
    assert not (folder / ".hotlap").exists()
    assert (folder / ".gitignore").read_text() == "*\n"
    assert [words[1] for words in demo.commands(folder)] == ["profile", "tune", "compare", "report"]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("important")
    with pytest.raises(UsageError, match="not of hotlap's demo"):
        demo.prepared(Path("mine"))
    assert (tmp_path / "mine/thesis.tex").exists()
