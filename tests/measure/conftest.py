"""A bench on which small real scripts are tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.facts.job import Job
from hotlap.launch.process import Signals
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """`bench(script, *arguments)`: a bench for that job, with one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    with Signals() as signals:
        yield lambda script, *words, **more: Bench(
            Job((sys.executable, str(SCRIPTS / script), *words), str(tmp_path), "job"),
            tmp_path / "search",
            collect,
            signals,
            **{"steps": 30, **more},
        )
