"""Real runs with experiments: a planted wait is found, what they train leaves nothing behind, a job may die in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hotlap.facts import codec
from hotlap.facts.experiment import Experiments, ExperimentState

from .conftest import in_own_process

SCRIPT = """
import os, time, torch; from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Items(Dataset):
    def __init__(self):
        self.values = torch.randn(512, 16)
    def __len__(self):
        return 512
    def __getitem__(self, index):
        time.sleep(float(os.environ.get("ITEM_S", "0.002")))
        return self.values[index], self.values[index].sum()

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    def forward(self, x):
        assert len(x) == 8 or not os.environ.get("ONLY_EIGHT"), "made for eight"
        return self.layers(x)

model = Net()
metrics = open("metrics.csv", "w")
open("keep.txt", "w").close()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
step = 0
for epoch in range(200):
    for x, y in DataLoader(Items(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = (model(x).squeeze() - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        step += 1
        print(f"made step {step}")
        if step % 10 == 0:
            torch.save(model.state_dict(), f"{step:06}.pt")
            torch.save(model.state_dict(), "last.tmp")
            os.replace("last.tmp", "last.pth")
        print(step, file=metrics)
        with open("summary.txt", "w") as summary:
            summary.write(str(step))
        if step > 100:
            Path("keep.txt").unlink(missing_ok=True)
"""


def profiled(folder: Path, *options: str, **variables: str) -> tuple[Any, Experiments, dict[str, Any]]:
    (folder / "train.py").write_text(SCRIPT, encoding="utf-8")
    words = ("profile", "--steps", "20", "--out", "run", "--json", "out.json", *options, "train.py")
    done = in_own_process(*words, folder=folder, **variables)
    assert done.returncode == 0, done.stderr
    found = codec.read_json(folder / "run" / "experiments.json", Experiments)
    return done, found, json.loads((folder / "out.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Experiments, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tried")
    return folder, *profiled(folder, "--experiments", "25s")


def test_a_planted_wait_is_found_and_its_cure_measured(tried: Any) -> None:
    _, _, found, view = tried
    cached = next(each for each in found.tried if each.knob == "cache-dataset")
    assert cached.state is ExperimentState.FASTER and cached.gain is not None and cached.gain > 1.0
    assert cached.numerics in ("bitwise", "audited")
    assert found.free_input is not None and found.free_input.gain is not None and found.free_input.gain > 1.0
    waits = [each for each in view["findings"] if each["severity"] == "critical"]
    assert waits[0] is view["findings"][0]
    fixes = [fix for each in waits for fix in each["fixes"]]
    assert any(fix["knob"] == "cache-dataset" and fix["measured_gain"] > 1.0 for fix in fixes)
    assert any(each["where"]["line"] == 11 for each in waits if each["where"])


def test_what_experiments_train_is_neither_saved_nor_printed(tried: Any) -> None:
    folder, done, found, _ = tried
    steps = [int(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("made step")]
    assert steps == list(range(1, len(steps) + 1))
    saved = sorted(int(path.stem) for path in folder.glob("*.pt"))
    assert saved == [step for step in steps if step % 10 == 0]
    assert (folder / "metrics.csv").read_text().split() == [str(step) for step in steps]
    assert (folder / "summary.txt").read_text() == str(steps[-1])
    assert (folder / "keep.txt").exists() and (folder / "last.pth").exists()
    blocks = sum(each.blocks for each in found.tried)
    assert blocks * 6 > 100 > len(steps)  # many more were made


def test_the_stored_run_gives_the_same_answer_again(tried: Any) -> None:
    folder, _, _, view = tried
    again = in_own_process("diagnose", "run", "--json", "again.json", folder=folder)
    assert again.returncode == 0, again.stderr
    repeated = json.loads((folder / "again.json").read_text(encoding="utf-8"))
    assert repeated["verdict"] == view["verdict"]
    assert repeated["experiments"] == view["experiments"]


def test_a_script_that_dies_under_an_experiment_keeps_its_profile(tmp_path: Path) -> None:
    done, found, view = profiled(tmp_path, "--experiments", "25s", ONLY_EIGHT="1", ITEM_S="0")
    assert found.ended.startswith("the script failed with AssertionError: made for eight (")
    assert found.ended.endswith("train.py:19) under batch-size=16")
    died = next(each for each in found.tried if each.setting == "16")
    assert died.state is ExperimentState.REFUSED
    assert found.measured and view["step"]["ms_median"] > 0
    assert "made for eight" not in done.stderr


def test_without_experiments_nothing_is_tried(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    words = ("profile", "--steps", "10", "--out", "run", "--experiments", "off", "train.py")
    done = in_own_process(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "run" / "experiments.json").exists()
