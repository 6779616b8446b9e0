"""The planted jobs, run once for all tests of this folder."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
RUN_SECONDS = 280


def _load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"clock_device_{name}", HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def clock_device() -> Path:
    """The folder that a script needs on its path to `import clock_device`."""
    builder = _load("build")
    if not builder.built().exists() and builder.compiler() is None:
        pytest.skip("no C++ compiler is here to build the clock device with")
    builder.build()
    return HERE


@pytest.fixture(scope="session")
def on_clock(clock_device: Path) -> Any:
    """Runs a file with the clock device in reach, and reads what it prints last as JSON."""

    def run(script: Path, *arguments: str) -> Any:
        environment = {**os.environ, "PYTHONPATH": str(clock_device), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, str(script), *arguments],
            env=environment, capture_output=True, text=True, timeout=RUN_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def results(on_clock: Any, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """What the probe saw of each planted job, by the job's name; run once for all processes that test."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    found = shared / "planted.json"
    with (shared / "planted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not found.exists():
            jobs = on_clock(HERE / "run_jobs.py", str(tmp_path_factory.mktemp("planted")))
            found.write_text(json.dumps(jobs))
    return dict(json.loads(found.read_text()))
