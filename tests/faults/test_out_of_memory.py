"""Memory that really runs out, and a process that is really killed: the job starts again with smaller batches."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

SCRIPT = Path(__file__).with_name("large_batch.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and /proc are those of Linux")


def hotlap(folder, *arguments):
    command = [sys.executable, "-m", "hotlap", "run", "--out", "run", SCRIPT, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    applied = json.loads((folder / "run/applied.json").read_text())
    return done, applied


def seen(folder):
    return json.loads((folder / "seen.json").read_text())


@pytest.fixture
def alone(tmp_path_factory, monkeypatch):
    """The folder of the script with memory enough, without hotlap."""
    folder, threads = tmp_path_factory.mktemp("alone"), torch.get_num_threads()
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [str(SCRIPT), "--batch", "64"])
        patch.syspath_prepend(SCRIPT.parent)  # as python does for a script
        runpy.run_path(str(SCRIPT), run_name="__main__")
    torch.set_num_threads(threads)
    return folder


def test_an_allocation_that_fails_halves_the_micro_batch(tmp_path, alone):
    # 128 MB for the activations of 64 samples, from the fourth step on, where 100 are to be had.
    done, applied = hotlap(tmp_path, "--batch", 64, "--extra-mb", 100, "--fail-from", 3)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "can't allocate memory" in done.stderr  # the script's own words stay
    assert "batch-size went from 64 to 32 at step 4: out of memory" in done.stderr
    assert (applied["starts"], applied["steps"]) == (2, 4)
    assert [(each["knob"], each["after"], each["lost"]) for each in applied["step_downs"]] == [
        ("batch-size", 32, 3),
        ("accumulate", 2, 3),
    ]
    assert seen(tmp_path)["sizes"] == [32] * 8
    corrected = yaml.safe_load((tmp_path / "run/corrected.yaml").read_text())
    assert corrected["settings"] == {"batch-size": 32, "accumulate": 2}
    for ours, theirs in zip(seen(tmp_path)["parameters"], seen(alone)["parameters"], strict=True):
        torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-5, atol=1e-6)


def test_a_killed_process_starts_again_and_goes_on_from_what_it_saved(tmp_path):
    done, applied = hotlap(tmp_path, "--batch", 64, "--kill-above", 32, "--kill-from", 3, "--resume")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "killed, as the kernel does when memory runs out" in done.stderr
    assert (applied["starts"], applied["settings"]) == (2, {"batch-size": 32, "accumulate": 2})
    assert {each["lost"] for each in applied["step_downs"]} == {1}  # three were made, two of them saved
    assert seen(tmp_path)["first"] == 2


def test_another_fault_is_not_tried_again(tmp_path):
    done, applied = hotlap(tmp_path, "--batch", 0)
    assert done.returncode == 1
    assert (applied["starts"], applied["step_downs"]) == (1, [])
    assert "batch_size should be a positive integer" in done.stderr
