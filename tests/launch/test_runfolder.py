"""Run folders: made before the job starts, found again by what a user remembers of them."""

from __future__ import annotations

import pytest

from hotlap.errors import UsageError
from hotlap.launch.runfolder import create_run, find_run

RESULTS = ("timeline.arrow", "diagnosis.json", "report.html", "log.txt", "trace.json")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fresh_folder_has_a_name_of_its_own_and_stays_out_of_git(here):
    first, second = create_run("my script!", None), create_run("my script!", None)
    assert first != second and first.name.endswith("-my-script-") and (first / "probe").is_dir()
    assert (here / ".hotlap" / ".gitignore").read_text() == "*\n"


def test_a_run_in_the_folder_of_another_does_not_inherit_its_results(here):
    for name in ("job.json", "host.json", *RESULTS, "mine.txt"):
        (here / name).write_text("old")
    create_run("train", ".")
    assert not any((here / name).exists() for name in RESULTS) and (here / "mine.txt").exists()


def test_files_of_a_folder_that_is_no_run_are_left_alone(here):
    (here / "report.html").write_text("the user's own")
    create_run("train", ".")
    assert (here / "report.html").read_text() == "the user's own"


def test_a_folder_that_cannot_be_is_told_before_anything_runs(here):
    (here / "file").write_text("")
    with pytest.raises(UsageError, match="file/run cannot be written"):
        create_run("train", "file/run")


@pytest.fixture
def runs(here):
    names = ("20250101-000000-train", "20250102-000000-train", "20250103-000000-other")
    for name in names:
        (here / ".hotlap" / "runs" / name).mkdir(parents=True)
    (here / ".hotlap" / "runs" / "zzz.txt").write_text("no run")
    return names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("last", 2),
        ("other", 2),
        ("train", 1),
        ("20250101-000000-train", 0),
        (".hotlap/runs/20250101-000000-train", 0),
    ],
)
def test_a_run_is_found_by_what_one_remembers(runs, text, found):
    assert find_run(text).name == runs[found]


def test_a_folder_goes_before_a_name(runs, here):
    (here / "train").mkdir()
    assert find_run("train").resolve() == here / "train"


def test_an_unknown_run_is_told_with_the_newest(runs):
    with pytest.raises(UsageError) as told:
        find_run("zzz.txt")
    assert str(told.value).endswith(f"the newest is .hotlap/runs/{runs[2]}")
