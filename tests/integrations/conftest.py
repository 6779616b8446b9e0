import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    """`record(integration, script, *arguments)`: what the integration reached while the script ran."""

    def run(integration, script, *arguments):
        folder = tmp_path_factory.mktemp(integration)
        source = HERE.parents[1] / "src"
        environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, HERE / "recorder.py", integration, "result.json", HERE.parent / script]
        done = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-3000:]
        seen = json.loads((folder / "result.json").read_text())
        assert seen["faults"] == []
        return SimpleNamespace(**seen)

    return run
