"""Mutated plans and run folders are read or refused in few words: the short form of bench/fuzz.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_mutated_plan_or_run_folder_ends_in_a_traceback(tmp_path):
    words = [sys.executable, ROOT / "bench" / "fuzz.py", "--plans", "150", "--runs", "150", "--stored", "300"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    for kind in ("plans", "runs", "searches", "searches gone on with", "baselines", "runs under a plan"):
        assert f"{kind} read" in done.stdout
