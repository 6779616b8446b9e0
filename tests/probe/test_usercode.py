"""Which code is the user's."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import CodeType

import pytest

from hotlap.probe.usercode import UserCode

LIBRARIES = sysconfig.get_paths()
HOTLAP = Path(__file__).parents[2] / "src" / "hotlap"


def code_in(file: str) -> CodeType:
    return compile("pass", file, "exec")


@pytest.mark.parametrize(
    "file",
    [
        "/home/me/train.py",
        "train.py",
        "<ipython-input-3-5f1e>",
        "/home/me/hotlap_experiments/train.py",
        str(HOTLAP.parent / "hotlap_recipes" / "printer_tcn" / "dataset.py"),
    ],
)
def test_scripts_are(file):
    assert UserCode().owns(code_in(file))


@pytest.mark.parametrize(
    "file",
    [
        json.__file__,
        f"{LIBRARIES['purelib']}/sklearn/preprocessing/_data.py",
        "/usr/lib/python3/dist-packages/numpy/core/numeric.py",
        "/opt/env/lib/python3.12/site-packages/lightning/loop.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        str(HOTLAP / "probe" / "session.py"),
    ],
)
def test_libraries_and_hotlap_itself_are_not(file):
    assert not UserCode().owns(code_in(file))


def test_the_probe_knows_its_own_frames():
    user = UserCode()
    assert user.is_probe(code_in(str(HOTLAP / "probe" / "taps" / "sync.py")))
    assert not user.is_probe(code_in("/home/me/train.py"))


ASK = """
import json, sys
from hotlap.probe.usercode import UserCode
import package.data, other
user = UserCode()
print(json.dumps([user.owns(each.__code__) for each in (run, package.data.load, other.load)]))
"""


@pytest.mark.parametrize(
    "how", [["-m", "package.train"], ["{site}/package/train.py"]], ids=["module", "script"]
)
def test_an_installed_package_is_when_it_is_what_runs(tmp_path, how):
    """`python -m package.train`, or the path of a script that lies among the installed packages."""
    site = tmp_path / "site-packages"
    (site / "package").mkdir(parents=True)
    (site / "package" / "__init__.py").touch()
    (site / "package" / "data.py").write_text("def load(): pass\n")
    (site / "other.py").write_text("def load(): pass\n")
    (site / "package" / "train.py").write_text("def run(): pass\n" + ASK)
    done = subprocess.run(
        [sys.executable, *(word.format(site=site) for word in how)],
        env={"PYTHONPATH": f"{site}:{HOTLAP.parent}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == [True, True, False]
