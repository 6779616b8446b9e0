"""hotlap in one environment, the job in another: each has what it needs and nothing of the other's (pipx, uv tool)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OF_HOTLAP = ("psutil", "pyarrow", "pyyaml", "nvidia-ml-py", "jinja2", "plotly", "rich")
OF_THE_JOB = ("torch", "numpy")
TRAIN = """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(512, 64)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        for _ in range(20):
            row = row.sort().values
        return row, row.sum()

if __name__ == "__main__":
    for missing in ("psutil", "pyarrow", "yaml", "rich"):
        try:
            __import__(missing)
        except ImportError:
            continue
        raise SystemExit(f"{missing} is there")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(12):
        for rows, sums in DataLoader(Rows(), batch_size=16, shuffle=True):
            optimizer.zero_grad()
            loss = (model(rows).squeeze() - sums).square().mean()
            loss.backward()
            optimizer.step()
"""
PLAN = """
hotlap: 1
settings:
  cache-dataset: file
  loader: true
  precision: bf16
  fused-optimizer: foreach
  channels-last: true
  gc-freeze: true
"""


def needed(names):
    """Distributions and what they need, without extras."""
    found, todo = set(), list(names)
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            wanted = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another system
        if name not in found:
            found.add(name)
            todo += [
                re.match(r"[\w.-]+", each)[0] for each in wanted.requires or () if "extra ==" not in each
            ]
    return found


def environment(folder, names, *paths):
    """A virtual environment with links to these distributions, and no other."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in needed(names):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            link = packages / top
            if not link.exists():
                link.symlink_to(Path(distribution.locate_file(top)))
    (packages / "paths.pth").write_text("".join(f"{path}\n" for path in paths))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def tool(tmp_path_factory):
    """`tool("profile", ...)`: hotlap as an installer for tools leaves it, where the job's environment is active."""
    if os.name == "nt":
        pytest.skip("the environments are made of links")
    folder = tmp_path_factory.mktemp("environments")
    python = environment(folder / "tool", OF_HOTLAP, ROOT / "src")
    job = environment(folder / "job", OF_THE_JOB)
    (folder / "train.py").write_text(TRAIN)
    (folder / "plan.yaml").write_text(PLAN)
    for each, module in ((python, "torch"), (python, "numpy"), (job, "psutil"), (job, "hotlap")):
        assert subprocess.run([each, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode

    def call(*words, **variables):
        base = {key: os.environ[key] for key in ("PATH", "HOME", "OMP_NUM_THREADS") if key in os.environ}
        command = [str(python), "-m", "hotlap", *words]
        active = base | {"VIRTUAL_ENV": str(job.parents[1])} | variables
        done = subprocess.run(command, cwd=folder, env=active, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    call.folder = folder
    return call


def test_a_job_is_profiled_and_changes_are_tried_on_it(tool):
    done = tool("profile", "--steps", "60", "--experiments", "4s", "--json", "seen.json",
                "--out", "profiled", "train.py")  # fmt: skip
    view = json.loads((tool.folder / "seen.json").read_text())
    assert view["host"]["versions"]["torch"] == metadata.version("torch")
    assert any(each["gain"] is not None for each in view["experiments"]), view["experiments"]
    assert (tool.folder / "profiled" / "log.txt").read_text().strip() == ""
    assert "could not" not in done.stderr


def test_a_plan_is_fitted(tool):
    done = tool("run", "--watch", "--plan", "plan.yaml", "--json", "ran.json",
                "--out", "ran", "train.py", HOTLAP_CACHE=str(tool.folder / "cache"))  # fmt: skip
    ran = json.loads((tool.folder / "ran.json").read_text())
    assert {each["knob"] for each in ran["fitted"]} >= {"cache-dataset", "precision", "fused-optimizer"}
    assert ran["step_downs"] == ran["breaches"] == []
    assert ran["steps"] == 12 * 512 / 16
    assert (tool.folder / "ran" / "log.txt").read_text().strip() == "", done.stderr


def test_the_doctor_shows_what_the_job_has(tool):
    facts = json.loads(tool("doctor", "--json", "-").stdout)
    assert facts["host"]["versions"]["torch"] == metadata.version("torch")
