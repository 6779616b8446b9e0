"""`hotlap selftest` on the clock device, which torch loads as it loads the backends of others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.pipeline import selftest

BACKEND = """
import clock_device


def load():
    clock_device.plan({"addmm": clock_device.MS}, planted=False, pageable=1.0)
"""


@pytest.mark.alone
def test_every_planted_answer_is_found(clock_device, tmp_path):
    (tmp_path / "clock_backend.py").write_text(BACKEND)
    about = tmp_path / "clock_backend-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: clock-backend\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[torch.backends]\nclock = clock_backend:load\n")
    path = [str(Path(selftest.__file__).parents[2]), str(clock_device), str(tmp_path)]
    for _ in range(2):  # once more where others disturbed its times
        done = subprocess.run(
            [sys.executable, "-m", "hotlap", "selftest", "--json", "-"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["device"] == "clock" and found["missed"] == 0
    reached = [check["figures"]["stage"] for check in found["checks"] if check["family"] == "attribution"]
    assert sorted(reached) == sorted([*selftest.DELAYS, selftest.TRANSFER])
    open_rows = [check["family"] for check in found["checks"] if check["state"] != "reached"]
    assert open_rows in ([], ["experiment"]), "an experiment that others disturb is not decided"
