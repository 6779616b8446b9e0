"""The plan in the training process: what it cannot read or does not know is told, and the script runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.facts.plan import Plan
from hotlap.launch.environment import PLAN, TAPS, child_environment
from hotlap.launch.planned import pass_plan, records_of

CODE = """
import torch
from torch.multiprocessing import start_processes

def train(rank):
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        net(torch.ones(1, 1)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

start_processes(train, nprocs=1, start_method="fork")
print("the end")
"""


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "probe"
    made.mkdir()
    return made


def run(folder: Path, plan: Path, *, taps: bool = False) -> subprocess.CompletedProcess[str]:
    base = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    environment = child_environment(folder, base=base, plan=plan, taps=taps)
    return subprocess.run(
        [sys.executable, "-c", CODE], env=environment, cwd=folder.parent, capture_output=True, text=True
    )


def test_without_a_plan_there_is_none_whatever_the_parent_was_told(folder, monkeypatch):
    monkeypatch.setenv(PLAN, "of another run")
    monkeypatch.setenv(TAPS, "off")
    environment = child_environment(folder)
    assert (environment[PLAN], environment[TAPS]) == ("", "on")


def test_a_forked_process_that_trains_tells_of_its_plan_beside_the_taps(folder):
    plan = Plan({"set-to-none": True, "gone": 1, "num-workers": 2})
    done = run(folder, pass_plan(folder, plan), taps=True)
    assert (done.returncode, done.stdout) == (0, "the end\n")
    assert done.stderr.splitlines() == [
        "hotlap: applied set-to-none=true",
        "hotlap: gone=1 cannot act: the script's Python has no such knob",
        "hotlap: num-workers=2 cannot act: the script builds no DataLoader",
    ]
    first, *others = records_of(folder)
    assert first.steps == 3 and not any(each.steps for each in others)
    assert first.faults == ()
    marks = [json.loads(path.read_text()) for path in folder.glob("[0-9]*.json") if "fitted" not in path.name]
    assert any(each["pid"] == first.pid and not each["faults"] for each in marks)


def test_a_plan_that_cannot_be_read_is_told_and_the_script_runs(folder):
    broken = folder / "plan.json"
    broken.write_text("{")
    done = run(folder, broken)
    assert (done.returncode, done.stdout) == (0, "the end\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith("hotlap: the plan is not applied: ")
