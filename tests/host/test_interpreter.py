"""Which Python a job runs with."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from hotlap.host import interpreter
from hotlap.host.installed import installed


def python_in(folder: Path, name: str = "python") -> str:
    path = folder / "bin" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.symlink_to(sys.executable)
    return str(path)


@pytest.fixture
def as_a_tool(monkeypatch, tmp_path):
    """hotlap's own environment has no torch, and nothing else is active."""
    monkeypatch.setattr(interpreter.importlib.util, "find_spec", lambda name: None)
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    (tmp_path / "project" / "scripts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project" / "scripts")
    return tmp_path


def test_hotlaps_own_where_that_has_torch(monkeypatch, tmp_path):
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    python_in(tmp_path)
    assert interpreter.job_python() == sys.executable


def test_else_the_active_environments_then_the_nearest_then_the_paths(as_a_tool, monkeypatch):
    assert interpreter.job_python() == sys.executable  # nothing else is there
    on_path = python_in(as_a_tool / "usr", "python3")
    monkeypatch.setenv("PATH", str(as_a_tool / "usr" / "bin"))
    assert interpreter.job_python() == on_path
    near = python_in(as_a_tool / "project" / ".venv")
    assert interpreter.job_python() == near
    conda = python_in(as_a_tool / "conda")
    monkeypatch.setenv("CONDA_PREFIX", str(as_a_tool / "conda"))
    assert interpreter.job_python() == conda
    active = python_in(as_a_tool / "active")
    monkeypatch.setenv("VIRTUAL_ENV", str(as_a_tool / "active"))
    assert interpreter.job_python() == active
    monkeypatch.setenv("VIRTUAL_ENV", str(as_a_tool / "gone"))
    assert interpreter.job_python() == conda


def test_a_launcher_has_the_python_of_its_environment(as_a_tool, monkeypatch):
    near = python_in(as_a_tool / "project" / ".venv")
    other = python_in(as_a_tool / "other")
    (as_a_tool / "other" / "pyvenv.cfg").touch()
    launcher = as_a_tool / "other" / "bin" / "torchrun"
    launcher.write_text("#!/bin/sh\n")
    launcher.chmod(0o755)
    assert interpreter.python_of(str(launcher)) == other
    assert interpreter.python_of(other) == other
    (as_a_tool / "other" / "pyvenv.cfg").unlink()  # as srun in /usr/bin: the Python beside it is the system's
    assert interpreter.python_of(str(launcher)) == near
    assert interpreter.python_of("no-such-command") == near


def test_what_another_python_has_is_its_own_answer(tmp_path):
    other = python_in(tmp_path)
    facts = interpreter.installed_for(other)
    assert facts["versions"]["python"] == platform.python_version()
    assert interpreter.installed_for(sys.executable) == installed()


def test_a_python_that_does_not_answer_is_taken_for_hotlaps_own(tmp_path):
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert os.access(broken, os.X_OK)
    assert interpreter.installed_for(str(broken)) == installed()
