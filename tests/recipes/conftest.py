"""What the tests of all recipes share: one thread, and the scripts as their users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import hotlap_recipes

Script = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def one_thread():
    """Two threads wait for each other at every operation, for long where another process holds a core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def run_script() -> Script:
    source = Path(hotlap_recipes.__file__).parents[1]
    search = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))

    def run(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *map(str, arguments)],
            cwd=cwd,
            env=os.environ | {"PYTHONPATH": search, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )

    return run
