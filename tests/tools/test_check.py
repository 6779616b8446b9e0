"""`make check` is quick because its tests only read facts: what starts a process or imports torch is refused there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PLANTED = {
    "judge/test_planted.py": """
import subprocess, sys, threading
import pytest

def test_reads():
    pass

def test_starts_a_process():
    subprocess.run([sys.executable, "-c", ""])

def test_starts_a_process_in_a_thread():
    thread = threading.Thread(target=test_starts_a_process)
    thread.start()
    thread.join()

def test_imports_torch():
    import torch

@pytest.mark.runs
def test_says_so():
    subprocess.run([sys.executable, "-c", ""])
""",
    "stats/test_computes.py": "import torch\n\ndef test_it():\n    pass\n",
    "stats/test_says_so.py": "import pytest, torch\n\npytestmark = pytest.mark.runs\n\ndef test_it():\n    pass\n",
    "probe/test_elsewhere.py": "import torch\n\ndef test_it():\n    pass\n",
    "test_units.py": "def test_it():\n    pass\n",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """`-m facts` over planted tests, with this suite's own settings: outcome by test."""
    root = tmp_path_factory.mktemp("project")
    (root / "tests").mkdir()
    shutil.copy(TESTS.parent / "pyproject.toml", root)
    shutil.copy(TESTS / "conftest.py", root / "tests")
    for name, text in PLANTED.items():
        path = root / "tests" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    options = ["-m", "facts", "-vv", "-rA", "--continue-on-collection-errors", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options]
    shown = subprocess.run(command, cwd=root, capture_output=True, encoding="utf-8").stdout
    return {
        name: word for word, name in re.findall(r"^(ERROR|FAILED|PASSED) tests/(\S+)", shown, re.MULTILINE)
    }


def test_what_reads_facts_is_run(outcomes):
    passed = {name for name, word in outcomes.items() if word == "PASSED"}
    assert passed == {"judge/test_planted.py::test_reads", "test_units.py::test_it"}


def test_a_process_and_torch_are_refused(outcomes):
    refused = {name for name, word in outcomes.items() if word != "PASSED"}
    in_planted = ("test_starts_a_process", "test_starts_a_process_in_a_thread", "test_imports_torch")
    assert refused == {"stats/test_computes.py", *(f"judge/test_planted.py::{name}" for name in in_planted)}
