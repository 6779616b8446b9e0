"""The first code in every Python process of a job: it attaches, hides nothing, and stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hotlap.launch.bootstrap import SEEN
from hotlap.launch.environment import _SITE, FOLDER, ORIGIN, already_inside, child_environment

NAMES = ("torch", "hotlap.launch.import_hook", "hotlap.probe.attach")
SHOW = f"import sys; print(sorted({{*{NAMES!r}}} & {{*sys.modules}}))"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "probe"
    made.mkdir()
    return made


def run(folder: Path, code: str, *, python_path: str = "", **changes: str):
    base = {"PATH": os.environ["PATH"]} | ({"PYTHONPATH": python_path} if python_path else {})
    environment = child_environment(folder, base=base) | changes
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=folder.parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def seen(folder: Path) -> list[bool]:
    return [json.loads(line)["torch"] for line in (folder / SEEN).read_text().splitlines()]


def test_a_process_is_met_before_its_own_code_and_torch_is_not_imported_for_it(folder):
    done = run(folder, SHOW)
    assert (done.stdout, done.stderr) == ("['hotlap.launch.import_hook']\n", "")
    assert seen(folder) == [False]


def test_processes_that_it_starts_are_met_too(folder):
    run(folder, "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])")
    assert seen(folder) == [False, False]


def test_the_sitecustomize_that_it_hides_still_runs(folder, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys; sys.was_here = __file__\n")
    done = run(
        folder,
        "import sys, sitecustomize; print(sys.was_here, sitecustomize.__file__ == sys.was_here)",
        python_path=str(tmp_path / "mine"),
    )
    assert done.stdout.split() == [str(tmp_path / "mine" / "sitecustomize.py"), "True"]
    assert seen(folder) == [False]


def test_a_hidden_sitecustomize_that_fails_fails_as_it_would_alone(folder, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("1 / 0\n")
    done = run(folder, "print('on')", python_path=str(tmp_path))
    alone = subprocess.run(
        [sys.executable, "-c", "print('on')"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.stdout == alone.stdout == "on\n"
    assert "ZeroDivisionError" in done.stderr
    assert "ZeroDivisionError" in alone.stderr


def test_the_users_python_path_comes_after_it_and_is_kept(folder, tmp_path):
    done = run(folder, "import sys; print(sys.path[1:3])", python_path=str(tmp_path))
    site, kept = eval(done.stdout)
    assert site.endswith("hotlap/launch/site")
    assert kept == str(tmp_path)


@pytest.mark.parametrize("stranger", ["hotlap/__init__.py", "hotlap/notes.txt"], ids=["package", "folder"])
def test_another_thing_called_hotlap_is_not_taken_for_it(folder, tmp_path, stranger):
    path = tmp_path / "elsewhere" / stranger
    path.parent.mkdir(parents=True)
    path.touch()
    done = run(folder, SHOW, python_path=str(tmp_path / "elsewhere"))
    assert (done.stdout, done.stderr) == ("['hotlap.launch.import_hook']\n", "")


def test_nothing_of_hotlaps_environment_is_let_in(folder):
    code = "import sys; print(*sys.path, sep='\\n')"
    watched = run(folder, code).stdout.splitlines()
    alone = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True).stdout
    assert [path for path in watched if not path.endswith("hotlap/launch/site")] == alone.splitlines()


def test_a_process_that_outlives_its_run_is_left_alone(folder):
    done = run(folder.parent / "gone", SHOW)
    assert done.stderr == ""
    assert not (folder.parent / "gone").exists()


def test_a_fault_of_the_bootstrap_is_one_line_and_the_script_runs(folder):
    done = run(folder, "print('on')", **{ORIGIN: "not a number"})
    assert done.stdout == "on\n"
    assert done.stderr.startswith("hotlap: could not attach: ValueError: ")
    assert len(done.stderr.splitlines()) == 1


def test_torch_is_met_when_it_comes_and_not_when_it_is_asked_for(folder):
    code = "import importlib.util as u, sys; u.find_spec('torch'); " + SHOW + "; import torch; " + SHOW
    done = run(folder, code)
    first, second = (eval(line) for line in done.stdout.splitlines())
    assert "hotlap.probe.attach" not in first
    assert "hotlap.probe.attach" in second
    assert seen(folder) == [False, True]


def test_inside_another_hotlap_only_while_that_one_runs(monkeypatch, folder):
    monkeypatch.delenv(FOLDER, raising=False)
    assert already_inside() is None
    monkeypatch.setenv(FOLDER, str(folder))
    assert already_inside() == str(folder)
    monkeypatch.setenv(FOLDER, str(folder / "gone"))
    assert already_inside() is None


def test_the_environment_is_a_copy(folder):
    base = {"PYTHONPATH": "/a"}
    made = child_environment(folder, base=base)
    assert base == {"PYTHONPATH": "/a"}
    assert made["PYTHONPATH"].split(os.pathsep)[1:] == ["/a"]


def test_a_python_that_is_too_old_is_named_and_runs_the_script():
    path = _SITE / "sitecustomize.py"
    begins = f"import sys; sys.version_info = (3, 10, 1)\n__file__ = {str(path)!r}\n"
    old = begins + path.read_text(encoding="utf-8") + "\nprint('ran')"
    environment = {**os.environ, FOLDER: "somewhere"}
    done = subprocess.run([sys.executable, "-S", "-c", old], env=environment, capture_output=True, text=True)
    assert done.stdout == "ran\n" and done.stderr.startswith("hotlap: needs Python 3.11 or newer"), (
        done.stderr
    )
