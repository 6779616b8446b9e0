"""Real runs with phases after the window: planted sizes and a planted wait come out, the window stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hotlap.cli import main
from hotlap.facts.arrow import read_timelines
from hotlap.facts.timeline import Timeline

ROOT = Path(__file__).parents[2]
STEPS = 30
SLEEP_MS = 5.0
SCRIPT = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

class Signals(Dataset):
    def __len__(self):
        return 8 * 4000

    def __getitem__(self, index):
        if index % 8 == 0:
            time.sleep(0.005)
        return torch.ones(256)

model = torch.nn.Sequential(torch.nn.Linear(256, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
large = torch.ones(400, 500)
sgd = torch.optim.SGD(model.parameters(), lr=1e-4)
for signals in DataLoader(Signals(), batch_size=8):
    sgd.zero_grad()
    with torch.no_grad():
        large @ large.T
    model(signals).mean().backward()
    sgd.step()
"""


def profile(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    options = ("--steps", str(STEPS), "--experiments", "20s", "--out", "run", "--json", "view.json")
    command = [sys.executable, "-m", "hotlap", "profile", *options, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("ops")
    (home / "train.py").write_text(SCRIPT)
    (home / "stderr").write_text(profile(home, "train.py").stderr)
    return home


@pytest.fixture(scope="module")
def view(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "view.json").read_text())
    return found


@pytest.fixture(scope="module")
def timeline(folder: Path) -> Timeline:
    (only,) = read_timelines(folder / "run" / "timeline.arrow")
    return only


@pytest.mark.alone
def test_the_planted_product_is_the_dearest_operator(view):
    dearest = view["ops"]["top"][0]
    assert (dearest["name"], dearest["shapes"], dearest["dtype"]) == (
        "aten::mm",
        "400x500 500x400",
        "float32",
    )
    assert dearest["calls"] == 1
    assert view["ops"]["matmul"] >= dearest["share"] > 0.3
    assert view["ops"]["steps"] == 3 and view["ops"]["device_idle"] is None
    assert sum(each["share"] for each in view["ops"]["top"]) <= 1.001


@pytest.mark.alone
def test_flops_of_the_step_are_those_that_were_planted(view):
    planted = {
        "forward": 2 * 400 * 500 * 400 + 2 * 8 * (256 * 32 + 32),
        "backward": 2 * 8 * (256 * 32 + 2 * 32),  # the first layer's input wants no gradient
    }
    seen = view["compute"]
    assert {each["stage"]: each["flops"] for each in seen["stages"]} == pytest.approx(planted, rel=0.01)
    assert seen["step"]["flops"] == pytest.approx(sum(planted.values()), rel=0.01)
    assert seen["roof"]["source"] == "measured" and seen["roof"]["dtype"] == "float32"
    assert 0 < seen["step"]["mfu"] < 1 and not seen["compiled"]


@pytest.mark.alone
def test_free_input_saves_the_planted_wait(view, timeline):
    waits = sorted(timeline.steps.stages["data"][timeline.steady_from :])
    assert waits[0] >= SLEEP_MS * 1e6
    walls = sorted(timeline.steps.wall[timeline.steady_from :])
    usual = walls[len(walls) // 2]
    free = next(each for each in view["experiments"] if each["knob"] == "free-input")
    assert usual / (1 + free["gain"]) < usual - SLEEP_MS * 1e6 / 2


@pytest.mark.alone
def test_the_window_ends_before_the_phases(view, timeline, folder):
    """The trace lasts for three steps and the ceiling for more: had they been measured, there would be more steps."""
    assert timeline.steady_steps >= STEPS
    trace = json.loads((folder / "run" / "trace.json").read_text())
    assert [each["name"] for each in trace["traceEvents"]].count("hotlap: a step ends") == 3
    assert timeline.workers[0].batches <= len(timeline.steps) + 1
    assert timeline.probe.faults == () and view["ending"] == "window"


@pytest.mark.alone
def test_nothing_of_the_profiler_is_printed(folder):
    assert "profiler" not in (folder / "stderr").read_text()


@pytest.mark.alone
def test_the_stored_run_shows_both(folder):
    command = [sys.executable, "-m", "hotlap", "report", "run", "--format", "terminal"]
    shown = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert "\nOperators\n" in shown and "\nFLOPs and roofline\n" in shown
    assert "Free input (replayed batches)" in shown
    assert "run/trace.json" in shown


def test_two_ranks_end_together(tmp_path):
    launcher = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone")
    script = str(ROOT / "tests" / "loops" / "ddp.py")
    profile(tmp_path, "--peak-flops", "5e11", "--", *launcher, script, "--steps", "100000")
    ranks = read_timelines(tmp_path / "run" / "timeline.arrow")
    assert [each.roof.flops for each in ranks] == [{"any": 5e11}] * 2
    assert [rank.ending for rank in ranks] == ["window", "window"]
    assert len({len(rank.steps) for rank in ranks}) == 1
    assert [rank.ops.steps for rank in ranks] == [3, 3]
    assert not any(rank.probe.faults for rank in ranks)


@pytest.mark.parametrize("given", ["fast", "0", "-1", "inf", "nan"])
def test_a_peak_that_is_no_rate_is_refused(tmp_path, given, capsys):
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it was started')")
    assert main(["profile", f"--peak-flops={given}", str(script)]) == 2
    assert f"--peak-flops {given} is no rate" in capsys.readouterr().err
