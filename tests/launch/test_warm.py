"""Runs that are forked with their libraries imported: as if started anew, and started anew where that is not so."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing

import psutil
import pytest

from hotlap.facts.job import Job
from hotlap.launch import runfolder, warm
from hotlap.launch.environment import child_environment
from hotlap.launch.process import Signals
from hotlap.launch.warm import NAME, WarmChild, Warmth
from hotlap.launch.warmed import importable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are forked warm under Linux only")

SCRIPT = """
import json, os, signal, sys
import torch
facts = {
    "main": __name__, "file": __file__, "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(),
    "spec": getattr(__spec__, "name", None), "same": sys.modules["__main__"].__dict__ is globals(),
    "word": os.environ.get("WORD"), "handler": str(signal.getsignal(signal.SIGINT)),
    "warm": os.environ.get("HOTLAP_WARM"),
}
print(json.dumps(facts), flush=True)
if "sleep" in sys.argv:
    import time
    time.sleep(60)
sys.exit(3 if "fails" in sys.argv else 0)
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """`started(warmth, *words)`: a started run and the file of its output."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with Signals() as signals:

        def start(warmth, job, **environment):
            folder = runfolder.probe_folder(runfolder.create_run("run", str(tmp_path / str(time.time_ns()))))
            out = folder / "out"
            with out.open("wb") as stream, (folder / "err").open("wb") as errors:
                child = warmth.start(
                    job, {**child_environment(folder), **environment}, signals, (stream, errors)
                )
            return child, out

        yield start


@pytest.fixture
def job(tmp_path):
    return lambda *words: Job((sys.executable, *words), str(tmp_path), "train")


def told(out):
    return json.loads(out.read_text().splitlines()[-1])


@pytest.mark.parametrize("words", [("train.py", "fails"), ("-m", "train", "fails")])
def test_a_warm_run_is_like_a_cold_one(started, job, tmp_path, words):
    mine = job(*words)
    with closing(Warmth(mine, tmp_path)) as warmth:
        first, out_of_first = started(warmth, mine, WORD="one")
        assert isinstance(first, subprocess.Popen)
        assert first.wait(60) == 3
        second, out_of_second = started(warmth, mine, WORD="two")
        assert isinstance(second, WarmChild)
        assert second.wait(60) == 3
        cold, warm = told(out_of_first), told(out_of_second)
        assert (cold.pop("word"), warm.pop("word")) == ("one", "two")
        assert cold == warm


def test_what_ends_a_warm_run_is_told(started, job, tmp_path):
    mine = job("train.py", "sleep")
    (tmp_path / NAME).write_text(json.dumps(["torch"]))
    with closing(Warmth(mine, tmp_path)) as warmth:
        runs = [started(warmth, mine) for _ in range(2)]  # beside each other
        for (child, out), number in zip(runs, (signal.SIGINT, signal.SIGKILL), strict=True):
            while not out.read_text():
                time.sleep(0.05)
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.01)
            child.send_signal(number)
            assert child.wait(60) == -number


def test_without_the_process_that_forks_runs_are_started_as_ever(started, job, tmp_path):
    mine = job("train.py")
    (tmp_path / NAME).write_text(json.dumps(["torch"]))
    with closing(Warmth(mine, tmp_path)) as warmth:
        child, _ = started(warmth, mine)
        os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
        child.wait(60)
        again, out = started(warmth, mine)
        assert isinstance(again, subprocess.Popen)
        assert again.wait(60) == 0
        assert told(out)["main"] == "__main__"


@pytest.mark.parametrize("noted", [["json"], ["no_such_library"], "not a list of names"])
def test_a_job_whose_torch_cannot_be_imported_ahead_stays_cold(started, job, tmp_path, noted):
    (tmp_path / NAME).write_text(json.dumps(noted) if isinstance(noted, list) else noted)
    mine = job("train.py")
    with closing(Warmth(mine, tmp_path)) as warmth:
        child, _ = started(warmth, mine)
        assert isinstance(child, subprocess.Popen)
        assert child.wait(60) == 0


def test_what_is_imported_after_the_script_changed_the_environment_is_not_noted(started, job, tmp_path):
    """Torch reads OMP_NUM_THREADS when it is imported. What a library itself changes comes again with the library."""
    (tmp_path / "train.py").write_text(
        "import sklearn, os\nos.environ.update(OMP_NUM_THREADS='2')\nimport torch\nprint('{}')"
    )
    mine = job("train.py")
    with closing(Warmth(mine, tmp_path)) as warmth:
        started(warmth, mine)[0].wait(60)
        noted = json.loads((tmp_path / NAME).read_text())
        assert "sklearn" in noted
        assert "torch" not in noted
        again, _ = started(warmth, mine)
        assert isinstance(again, subprocess.Popen)
        again.wait(60)


LIBRARIES = {
    "hangs": "import time; time.sleep(600)",
    "starts_a_thread": "import threading, time; threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_hangs_or_starts_a_thread_is_left_to_cold_runs(
    started, job, tmp_path, monkeypatch, library
):
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / f"{library}.py").write_text(LIBRARIES[library])
    monkeypatch.setenv("PYTHONPATH", str(installed))
    monkeypatch.setattr(warm, "_PATIENCE_S", 8.0)
    monkeypatch.setattr(warm, "_GRACE_S", 0.2)
    (tmp_path / NAME).write_text(json.dumps(["torch", library]))
    mine = job("train.py")
    with closing(Warmth(mine, tmp_path)) as warmth:
        child, _ = started(warmth, mine)
        assert isinstance(child, subprocess.Popen)
        assert child.wait(60) == 0


@pytest.mark.parametrize(
    ("library", "noted"),
    [("", False), ("lightning", False), ("sklearn", True), ("hotlap", True)],
)
def test_a_change_of_the_environment_counts_unless_its_library_comes_again(library, noted):
    """What Lightning sets before torch is imported would be missing: it is not imported ahead itself."""
    named = ["sklearn", "lightning", "torch"]
    for name in named:
        importlib.import_module(name)
    assert ("torch" in importable(named, [(2, library)])) is noted


def test_libraries_that_know_torch_are_left_to_the_script():
    named = ["json.decoder", "lightning.pytorch", "torch", "torch.utils.data", "sklearn", "hotlap.units"]
    for name in named:
        importlib.import_module(name)
    assert importable([*named, "gone"]) == [each for each in named if each != "lightning.pytorch"]
