"""A run folder that is deleted while the job runs: one line, no traceback, and the script's own exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import shutil, sys, torch
weight = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
for step in range(40):
    if step == 20:
        shutil.rmtree(sys.argv[1])
    weight.sum().backward()
    optimizer.step()
print("trained")
raise SystemExit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 7])
@pytest.mark.parametrize("command", [("profile", "--full"), ("run",)], ids=["profile", "run"])
def test_the_exit_code_is_the_scripts_own(tmp_path, command, code):
    script, out = tmp_path / "train.py", tmp_path / "folder"
    script.write_text(SCRIPT)
    words = [sys.executable, "-m", "hotlap", *command, "--out", str(out), str(script), str(out), str(code)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "trained\n"), done.stderr
    assert "was deleted while the job ran" in done.stderr
    assert "Traceback" not in done.stderr
