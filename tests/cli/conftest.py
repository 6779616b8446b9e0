"""One real profile of a small script for all tests of commands on stored runs, and the commands themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hotlap.cli import main
from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.timeline import Timeline

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        signal = torch.randn(64)
        for _ in range(20):
            signal = signal.sort().values
        return signal, signal.sum()


model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for signals, sums in DataLoader(Signals(), batch_size=32):
    optimizer.zero_grad()
    loss = (model(signals).squeeze() - sums).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


@dataclass(frozen=True)
class Said:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


def in_own_process(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, "-m", "hotlap", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8")


@pytest.fixture(scope="session")
def profiled(tmp_path_factory) -> Path:
    """The folder of a script that was profiled once, as a user would."""
    folder = tmp_path_factory.mktemp("signals")
    (folder / "train.py").write_text(SCRIPT)
    done = in_own_process("profile", "--steps", "30", "--experiments", "off", "train.py", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def folder(profiled, tmp_path, monkeypatch) -> Path:
    """A copy of that folder, to work in and to damage."""
    shutil.copytree(profiled, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


@pytest.fixture
def stored(folder) -> Path:
    """Its run folder."""
    (run,) = (folder / ".hotlap" / "runs").iterdir()
    return run


@pytest.fixture
def hotlap(capsys) -> Callable[..., Said]:
    """Runs a command of hotlap in this process: `hotlap("report", "last")`."""

    def run(*words: str) -> Said:
        capsys.readouterr()
        code = main(words)
        printed = capsys.readouterr()
        return Said(code, printed.out, printed.err)

    return run


@pytest.fixture
def own_process(folder) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of hotlap in a process of its own, in the folder of the profiled script."""
    return lambda *words, **variables: in_own_process(*words, folder=folder, **variables)


@pytest.fixture
def change_timeline(stored) -> Callable[..., None]:
    """Stores the run's timeline with changes: `change_timeline(steady_from=10**6)`."""

    def change(**changes: object) -> None:
        def changed(timeline: Timeline) -> Timeline:
            return replace(timeline, **changes)

        path = stored / "timeline.arrow"
        write_timelines(path, [changed(each) for each in read_timelines(path)])

    return change
