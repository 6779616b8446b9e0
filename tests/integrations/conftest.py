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
    """`record(integration, [script, *arguments], ...)`: what the integration reached while each of the scripts ran."""

    def run(integration, *scripts):
        folder = tmp_path_factory.mktemp(integration)
        environment = os.environ | {"PYTHONPATH": str(HERE.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
        commands = [[str(HERE.parent / script), *arguments] for script, *arguments in scripts]
        done = subprocess.run(
            [sys.executable, HERE / "recorder.py", integration, "result.json", json.dumps(commands)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        seen = json.loads((folder / "result.json").read_text())
        assert [each["faults"] for each in seen] == [[]] * len(scripts)
        return [SimpleNamespace(**each) for each in seen]

    return run
