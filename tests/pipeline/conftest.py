"""A job that the gate measures in a folder of its own, only as often as a test needs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.facts.job import Job
from hotlap.pipeline import baseline


@pytest.fixture
def job_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], Job]:
    """`job_of(script, runs)`: the present folder is the job's, and a baseline of it is made of so many runs."""

    def make(script: str, runs: int) -> Job:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        monkeypatch.setattr(baseline, "LEAST_RUNS", runs)
        monkeypatch.setattr(baseline, "MOST_RUNS", runs)
        (tmp_path / "train.py").write_text(script)
        return Job((sys.executable, "train.py"), str(tmp_path), "train")

    return make
