"""A look at a run folder from outside: of a job that runs, ends, is killed or hangs; of one that is damaged or gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from array import array

import pytest

from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.timeline.fold import fold
from hotlap.watch.live.reader import LiveReader, RunState, Told, progress, state_of


def marked(count):
    """Steps of 10 ms: 4 of data, 6 of backward, the optimizer at once."""
    values = array("q")
    for at in range(0, count * 10_000_000, 10_000_000):
        for kind, begin, end in ((Kind.DATA, 0, 4), (Kind.BACKWARD, 4, 10), (Kind.STEP, 10, 10)):
            values.append((at + begin * 1_000_000) << 8 | marks.enter(kind))
            values.append((at + end * 1_000_000) << 8 | marks.leave(kind))
        values.append(0 << 8 | marks.OPTIMIZER_ID)
    return values.tobytes()


def stored(run, text):
    shutil.rmtree(run / "probe")
    (run / "watch.json").write_text(text)


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def run(tmp_path, sleeper):
    """A run folder as a job leaves it while it trains, with monitors."""
    folder = tmp_path / "run"
    (folder / "probe").mkdir(parents=True)
    job = {"schema": 1, "argv": ["python", "train.py"], "cwd": "/", "name": "train"}
    (folder / "job.json").write_text(json.dumps(job))
    (folder / "probe" / f"{sleeper.pid}.marks").write_bytes(marked(100))
    word = {"state": "calm", "gravity": "ok", "since": None, "figures": {"usual": 1.0}, "series": []}
    journal = {"pid": sleeper.pid, "steps": 100, "notes": {"total": 400}, "monitors": {"loss-spike": word}}
    (folder / "probe" / f"{sleeper.pid}.watch.json").write_text(json.dumps(journal))
    return folder


@pytest.fixture
def look(run):
    reader = LiveReader(run, fold)
    return lambda **words: reader.look(**words)


def test_a_running_job(look, sleeper):
    view = look()
    assert (view["state"], view["steps"], view["pid"]) == ("running", 100, sleeper.pid)
    assert view["job"]["shown"] == "python train.py" and view["problems"] == []
    assert view["lately"]["stages"]["data"] == pytest.approx(0.4)
    assert view["lately"]["steps_per_s"] == pytest.approx(100)
    assert view["progress"] == {"done": 100, "total": 400, "epoch": None, "left_s": pytest.approx(3.0)}
    assert view["usage"]["rss"] > 0 and view["monitors"]["loss-spike"]["state"] == "calm"
    json.dumps(view)


def test_a_job_that_was_killed_with_its_parent(look, run, sleeper):
    look()
    sleeper.kill()
    sleeper.wait()
    assert look()["state"] == "ending"
    old = time.time() - 100
    os.utime(run / "probe" / f"{sleeper.pid}.marks", (old, old))
    view = look()
    assert view["state"] == "killed" and view["age_s"] > 90 and view["steps"] == 100


def test_a_job_that_hangs(look, run, sleeper):
    old = time.time() - 100
    os.utime(run / "probe" / f"{sleeper.pid}.marks", (old, old))
    # The process of the test is younger than the marks: as if its number had been given away again.
    assert look()["state"] == "killed"
    assert state_of(run, alive=True, age_s=100.0, step_s=0.01) is RunState.STALLED
    assert state_of(run, alive=True, age_s=100.0, step_s=30.0) is RunState.RUNNING


def test_the_end_of_a_job_is_seen_by_those_who_watch_and_by_those_who_come_later(look, run):
    last = look()
    (run / "watch.json").write_text(json.dumps({"schema": 1, **look(ended=True)}))
    shutil.rmtree(run / "probe")
    for view in (look(), LiveReader(run, fold).look()):
        assert view["state"] == "ended" and view["steps"] == last["steps"]
        assert view["lately"]["stages"] == last["lately"]["stages"]
    (run / "watch.json").write_text("{}")
    assert look()["steps"] == last["steps"], "what was seen last is still shown"


def test_a_folder_that_is_gone(look, run):
    look()
    shutil.rmtree(run)
    view = look()
    assert view["state"] == "gone" and view["steps"] == 100


@pytest.mark.parametrize(
    "damage",
    [
        lambda run, pid: (run / "job.json").write_text("{"),
        lambda run, pid: (run / "job.json").write_text('["a list"]'),
        lambda run, pid: (run / "job.json").write_text('{"argv": 3}'),
        lambda run, pid: (run / "job.json").write_bytes(b"\xff\xfe\x00"),
        lambda run, pid: (run / "probe" / f"{pid}.watch.json").write_text('{"monitors": 7, "notes": []'),
        lambda run, pid: (run / "probe" / f"{pid}.marks").write_bytes(os.urandom(8 * 997 + 3)),
        lambda run, pid: (run / "probe" / "7.steps").mkdir(),
        lambda run, pid: (run / "probe" / f"{pid}.watch.json").write_bytes(b"x" * (5 << 20)),
        lambda run, pid: (run / "watch.json").write_text("[1, 2"),
        lambda run, pid: stored(run, '{"steps": 3, "lately": {"stages": 7, "steps_per_s": "fast"}}'),
        lambda run, pid: stored(
            run, '{"steps": 3, "monitors": [], "drift": {"state": "x", "now": 1}, "job": 1}'
        ),
        lambda run, pid: stored(run, '{"steps": "3", "progress": {"done": [], "total": {}}}'),
        lambda run, pid: stored(
            run, '{"steps": 3, "monitors": {"a": {"state": "b", "figures": {"c": [1]}}}}'
        ),
    ],
)
def test_what_is_damaged_is_named_and_the_rest_is_shown(run, sleeper, damage):
    from hotlap.report.live.picture import draw

    damage(run, sleeper.pid)
    view = LiveReader(run, fold).look()
    assert view["state"] in set(RunState)
    assert "hotlap" in draw(view), "it can be drawn all the same"
    json.dumps(view)


@pytest.mark.parametrize(
    "journal",
    [
        {"monitors": 7, "notes": [], "steps": "many", "cost": "much"},
        {"monitors": {"x": 1, "y": {"state": "odd"}}, "notes": {"total": "all", "epochs": {"a": 1, "5": {}}}},
        {"monitors": {"loss-spike": {"state": "calm", "figures": [1], "gravity": {}}}, "pid": "none"},
    ],
)
def test_a_journal_of_somebody_else_does_no_harm(run, sleeper, journal):
    from hotlap.report.live.picture import draw

    (run / "probe" / f"{sleeper.pid}.watch.json").write_text(json.dumps(journal))
    view = LiveReader(run, fold).look()
    assert view["steps"] == 100 and "100" in draw(view)


def test_an_exit_code_or_a_command_that_is_none_is_not_shown(tmp_path):
    for code, shown in ((3, 3), (-1, None), (10**18, None), ("0", None)):
        (tmp_path / "applied.json").write_text(json.dumps({"exit_code": code}))
        assert LiveReader(tmp_path, fold).look(ended=True)["exit_code"] == shown
    for argv in ([1.5], [["python"]], "python", None):
        (tmp_path / "job.json").write_text(json.dumps({"argv": argv, "cwd": "/", "name": "train"}))
        look = LiveReader(tmp_path, fold).look(ended=True)
        assert look["job"] is None
        assert "job.json" in str(look["problems"])


def test_an_empty_folder_is_a_job_that_has_not_begun(tmp_path):
    view = LiveReader(tmp_path, fold).look()
    assert view["state"] == "waiting" and view["steps"] == 0 and view["job"] is None


def test_progress_of_an_epoch():
    notes = {"epochs": {"50": {"begun": 3, "at_step": 90}, "10": {"begun": 2, "at_step": 100}}, "passes": 2}
    found = progress(Told(steps=100, notes=notes), 107, 5.0)
    assert found == {"done": 10, "total": 25, "epoch": 3, "left_s": 3.0}
    assert progress(Told(), 10, 1.0) is None
    assert progress(Told(notes={"total": 10}), 12, None) == {
        "done": 10,
        "total": 10,
        "epoch": None,
        "left_s": None,
    }
