"""Only commands that exist are offered, and they can be typed as they stand."""

from __future__ import annotations

import shlex

import pytest

from hotlap import knobs
from hotlap.report import advice

FUTURE = (*advice.COMMANDS, "tune")
FIX = {"knob": "num-workers", "setting": "4"}


def lines(view, commands=advice.COMMANDS):
    return [command.line for command in advice.next_commands(view, commands)]


@pytest.mark.parametrize("name", ["data-bound", "healthy", "multi-rank", "nothing-measured"])
def test_only_commands_that_exist_are_offered(views, name):
    assert lines(views[name])
    for line in lines(views[name]):
        assert shlex.split(line)[0] == "hotlap" and shlex.split(line)[1] in advice.COMMANDS


def test_the_cause_is_explained_and_the_report_opened(views):
    assert lines(views["data-bound"]) == [
        "hotlap run --set cache-dataset=memory train.py --epochs 3",
        "hotlap tune train.py --epochs 3",
        "hotlap explain item-cpu-bound",
        "hotlap report .hotlap/runs/20261116-101500-train --open",
    ]


def test_tune_is_offered_once_it_exists_and_there_is_something_to_try(views):
    assert lines(views["data-bound"], FUTURE)[1] == "hotlap tune train.py --epochs 3"
    assert not any("tune" in line for line in lines(views["multi-rank"], FUTURE))


def test_a_run_that_was_too_short_is_repeated_in_full(views):
    short = views["nothing-measured"]
    assert lines({**short, "ending": "window"})[0] == "hotlap profile --full train.py --epochs 3"


def test_a_run_that_was_seen_to_its_end_is_not_repeated_in_full(views):
    assert not any("--full" in line for line in lines({**views["nothing-measured"], "ending": "finished"}))


@pytest.fixture
def one_knob(monkeypatch, tmp_path):
    (tmp_path / "num_workers.py").touch()
    monkeypatch.setattr(knobs, "__path__", [str(tmp_path)])


@pytest.mark.usefixtures("one_knob")
def test_a_fix_is_applied_where_run_exists_and_shown_elsewhere(views):
    job = views["data-bound"]["job"]
    assert advice.apply_command(FIX, job).line == "hotlap run --set num-workers=4 train.py --epochs 3"
    assert advice.apply_command(FIX, job, {"knobs"}).line == "hotlap knobs show num-workers"
    assert advice.apply_command(FIX, job, ()) is None


@pytest.mark.usefixtures("one_knob")
@pytest.mark.parametrize("commands", [{"knobs"}, {"run"}])
def test_only_knobs_that_exist_are_applied_or_shown(views, commands):
    fix = {**FIX, "knob": "num-wrokers"}
    assert advice.apply_command(fix, views["data-bound"]["job"], commands) is None


@pytest.mark.parametrize(
    ("argv", "typed"),
    [
        (["/opt/venv/bin/python3.11", "my train.py", "--lr", "1e-3"], "'my train.py' --lr 1e-3"),
        (["python", "-m", "pkg.train"], "-m pkg.train"),
        (["python", "-O", "train.py"], "-- python -O train.py"),
        (["torchrun", "--nproc_per_node", "2", "train.py"], "-- torchrun --nproc_per_node 2 train.py"),
    ],
)
def test_a_job_is_typed_as_profile_takes_it(argv, typed):
    assert advice.typed({"argv": argv}) == typed


def test_a_run_folder_with_blanks_is_quoted(views):
    view = {**views["healthy"], "run_shown": "my runs/1; rm -rf x"}
    assert shlex.split(lines(view)[0]) == ["hotlap", "report", "my runs/1; rm -rf x", "--open"]


def test_what_ran_in_a_notebook_has_no_command_to_type():
    job = {"argv": [], "cwd": "/", "name": "notebook", "shown": "notebook"}
    assert (
        advice.apply_command({"knob": "num-workers", "setting": 2}, job).line
        == "hotlap knobs show num-workers"
    )
