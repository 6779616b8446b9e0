"""A write of hotlap's that fails costs the record, never the job: its output and its exit code are its own.

HOTLAP_EVERY_WRITE=1 makes every single one fail, which takes minutes; else some of them do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

SITE = Path(__file__).parent / "failing_site"
CODE = 7
SOME = 4
SCRIPT = f"""
import sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step in range(30):
    optimizer.zero_grad()
    model(torch.ones(8, 4)).mean().backward()
    optimizer.step()
    print("step", step, flush=True)
sys.exit({CODE})
"""
OUTPUT = "".join(f"step {step}\n" for step in range(30))
COMMANDS = {"profile": ("profile", "--full"), "run": ("run", "--set", "fused-optimizer=foreach")}


def _run(folder: Path, where: str, number: int, command: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    path = os.pathsep.join(filter(None, (str(SITE), os.environ.get("PYTHONPATH"))))
    failing = {"FAILING": f"{where} {number}", "FAILING_COUNT": str(folder / "count")}
    words = [sys.executable, "-m", "hotlap", *COMMANDS[command], "train.py"]
    environment = {**os.environ, "PYTHONPATH": path, **failing}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, env=environment)


def _counted(folder: Path, where: str) -> int:
    """Calls of the process that made most: a job may start others."""
    lines = (line.split() for line in (folder / "count").read_text().splitlines())
    return max(int(count) for name, count in lines if name == where)


def _left(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("where", ["parent", "job"])
@pytest.mark.parametrize("command", COMMANDS)
def test_each_write_may_fail(tmp_path: Path, command: str, where: str) -> None:
    whole = _run(tmp_path / "whole", where, 0, command)
    assert (whole.returncode, whole.stdout.startswith(OUTPUT)) == (CODE, True), whole.stderr
    count = _counted(tmp_path / "whole", where)
    assert count >= 2, "hotlap writes something"
    step = 1 if os.environ.get("HOTLAP_EVERY_WRITE") else max(1, count // SOME)
    for number in range(1, count + 1, step):
        folder = tmp_path / f"{number}"
        ran = _run(folder, where, number, command)
        assert "Traceback" not in ran.stderr, (number, ran.stderr)
        if ran.returncode == 2 and where == "parent":  # before the job was started: it says why
            assert ran.stdout == "" and "->" in ran.stderr, (number, ran.stderr)
        else:
            assert (ran.returncode, ran.stdout.startswith(OUTPUT)) == (CODE, True), (number, ran.stderr)
        assert not _left(folder), number
