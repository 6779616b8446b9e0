"""Which Python a job runs with. hotlap may be installed beside torch, or as a tool in an environment of its own."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hotlap.host import installed

_PLACES = ("bin/python", "bin/python3", "Scripts/python.exe", "python.exe")  # below an environment's folder
_PATIENCE_S = 30.0
_PYTHON = re.compile(r"python[\d.]*w?(\.exe)?")


def is_python(word: str) -> bool:
    return _PYTHON.fullmatch(Path(word).name) is not None


def job_python() -> str:
    """What `hotlap profile train.py` runs the script with.

    hotlap's own Python where that has torch; else hotlap is installed as a tool (pipx, uv tool), and the job's Python
    is that of the active environment, of the nearest `.venv`, or `python` on the path.
    """
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return next(_elsewhere(), sys.executable)


def python_of(command: str) -> str:
    """The Python behind the first word of a command: itself, or that of the environment of a launcher (torchrun)."""
    path = shutil.which(command)
    if path is not None and is_python(path):
        return path
    beside = _python_in(Path(path).parent.parent) if path is not None else None
    in_environment = beside is not None and (Path(beside).parent.parent / "pyvenv.cfg").is_file()
    return beside if beside is not None and in_environment else job_python()


def installed_for(python: str) -> dict[str, Any]:
    """What `installed.installed()` answers in that Python; of hotlap's own, where that one does not answer."""
    return installed.installed() if _is_own(python) else _answer(python)


@functools.cache
def _answer(python: str) -> dict[str, Any]:
    program = Path(installed.__file__).read_text(encoding="utf-8")
    try:
        done = subprocess.run(
            [python, "-c", program], capture_output=True, text=True, timeout=_PATIENCE_S, check=True
        )
        facts: dict[str, Any] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return installed.installed()
    return facts


def _is_own(python: str) -> bool:
    """By its name: the Pythons of two environments are often links to one file."""
    return Path(python).absolute() == Path(sys.executable).absolute()


def _elsewhere() -> Iterator[str]:
    here = Path.cwd()
    active = [Path(named) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if (named := os.environ.get(name))]
    near = [folder / ".venv" for folder in (here, *here.parents)]
    for folder in (*active, *near):
        if (found := _python_in(folder)) is not None:
            yield found
    for name in ("python", "python3"):
        path = shutil.which(name)
        if path is not None and Path(path).parent != Path(sys.prefix, "bin"):
            yield path


def _python_in(folder: Path) -> str | None:
    return next((str(folder / place) for place in _PLACES if (folder / place).is_file()), None)
