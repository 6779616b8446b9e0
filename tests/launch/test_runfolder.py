"""The run folder: made before anything runs, and never at the cost of somebody else's files."""

from __future__ import annotations

import pytest

from hotlap.errors import UsageError
from hotlap.launch.runfolder import (
    create_run,
    find_run,
    keep_trace,
    probe_folder,
    remove_probe_files,
    remove_run,
)


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_has_a_folder_of_its_own_that_git_does_not_see(home):
    run = create_run("my run: über", None)
    assert run.is_absolute()
    assert run.parent == home / ".hotlap" / "runs"
    assert run.name.endswith("-my-run-ber")
    assert names(probe_folder(run)) == ["control"]
    assert (home / ".hotlap" / ".gitignore").read_text() == "*\n"


def test_two_runs_of_one_second_are_two_folders():
    assert len({create_run("train", None) for _ in range(3)}) == 3


def test_a_chosen_folder_is_used_as_it_is(home):
    (home / "out").mkdir()
    (home / "out" / "notes.txt").touch()
    assert create_run("train", "out") == home / "out"
    assert names(home / "out") == ["notes.txt", "probe"]
    assert not (home / ".hotlap").exists()


def test_what_an_earlier_run_left_is_removed_and_nothing_else(home):
    run = create_run("train", "out")
    for name in ("job.json", "host.json", "timeline.arrow", "report.html", "notes.txt"):
        (run / name).touch()
    for name in ("12.marks", "12.samples", "12.json", ".12.json", "12.trace.json", "seen.jsonl"):
        (probe_folder(run) / name).touch()
    create_run("train", "out")
    assert names(run) == ["host.json", "job.json", "notes.txt", "probe"]
    assert names(probe_folder(run)) == ["control"]


def test_results_that_are_no_runs_are_left_alone(home):
    (home / "out").mkdir()
    (home / "out" / "report.html").touch()
    create_run("train", "out")
    assert (home / "out" / "report.html").exists()


@pytest.mark.parametrize("alien", ["data.csv", "12.marks.bak", "control.py"])
def test_a_folder_called_probe_that_is_somebody_elses_is_refused(home, alien):
    (home / "out" / "probe").mkdir(parents=True)
    (home / "out" / "probe" / alien).write_text("precious")
    with pytest.raises(UsageError, match=alien) as refusal:
        create_run("train", "out")
    assert "--out DIR" in refusal.value.remedy
    assert (home / "out" / "probe" / alien).read_text() == "precious"


@pytest.mark.parametrize("blocked", [".hotlap", ".hotlap/runs", "out"])
def test_a_folder_that_cannot_be_written_is_told_with_a_remedy(home, blocked):
    (home / blocked).parent.mkdir(exist_ok=True)
    (home / blocked).write_text("a file")
    with pytest.raises(UsageError, match="cannot be written") as refusal:
        create_run("train", "out" if blocked == "out" else None)
    assert refusal.value.remedy == "choose another with --out DIR"


def test_the_probes_files_go_when_the_timeline_is_written():
    run = create_run("train", None)
    (probe_folder(run) / "12.marks").touch()
    remove_probe_files(run)
    assert names(run) == []
    remove_probe_files(run)


def test_a_folder_that_an_orphan_still_writes_to_is_no_fault(monkeypatch):
    run = create_run("train", None)

    def rmdir(self):
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr("pathlib.Path.rmdir", rmdir)
    remove_probe_files(run)


def test_of_a_job_that_did_not_start_nothing_is_left(home):
    run = create_run("train", None)
    (run / "job.json").touch()
    remove_run(run)
    assert names(home / ".hotlap" / "runs") == []
    chosen = create_run("train", "out")
    (chosen / "notes.txt").touch()
    remove_run(chosen)
    assert names(chosen) == ["notes.txt"]


def test_the_trace_of_the_first_rank_that_has_one_is_kept():
    run = create_run("train", None)
    (probe_folder(run) / "13.trace.json").write_text("{}")
    keep_trace(run, [12, 13, 14])
    assert (run / "trace.json").read_text() == "{}"


def test_runs_are_found_by_folder_by_the_end_of_their_name_and_as_the_last(home):
    first, second = create_run("one", None), create_run("two", None)
    assert find_run(str(first)) == first
    assert find_run("one").resolve() == first
    assert find_run("last").resolve() == max(first, second)
    with pytest.raises(UsageError, match="there is no run 'three'") as refusal:
        find_run("three")
    assert "the newest is" in refusal.value.remedy


def test_where_there_is_no_run_the_remedy_is_to_record_one():
    with pytest.raises(UsageError) as refusal:
        find_run("last")
    assert refusal.value.remedy == "record one: hotlap profile train.py"
