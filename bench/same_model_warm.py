"""Runs of the attack catalogue in processes that are forked with torch imported: the training process's part of
`hotlap run` without its parent, at a tenth of the time. The figures in the docs come from real commands."""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from attacks import Attack
from hotlap.facts.plan import Plan
from hotlap.launch.environment import ORIGIN
from hotlap.launch.fitting import fit
from hotlap.launch.planned import pass_plan, records_of
from hotlap.plan.catalogue import all_knobs, from_words
from hotlap.sameness import breach

_LIBRARIES = {
    "import lightning": "lightning",
    "from transformers import": "transformers.trainer",
    "import pandas": "pandas",
    "from PIL import": "PIL.Image",
}


def import_for(attacks: Iterable[Attack]) -> None:
    """Libraries that these scripts import, once for all of them."""
    bodies = "\n".join(attack.script(0) for attack in attacks)
    for words, module in _LIBRARIES.items():
        if words in bodies:
            importlib.import_module(module)


def run_warm(folder: Path, settings: Iterable[str], result: Path, limit_s: float) -> dict[str, Any]:
    """Exit code, output and what became of the settings, of the script train.py in this folder."""
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        probe, output = Path(name), Path(name) / "output"
        child = os.fork()
        if not child:
            _train(folder, tuple(settings), result, probe, output)
        until = time.monotonic() + limit_s
        while True:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                break
            if time.monotonic() > until:
                os.killpg(child, signal.SIGKILL)
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # workers that the script has left
        records = records_of(probe)
        fitted = [dataclasses.asdict(each) for each in records[0].fitted] if records else []
        said = output.with_suffix(".err").read_text(errors="replace")
        return {
            "code": os.waitstatus_to_exitcode(status),
            "output": output.read_text(errors="replace"),
            "error": said[-600:],
            "applied": {"fitted": fitted, "breaches": [vars(each) for each in breach.read(probe)]},
        }


def _train(folder: Path, settings: tuple[str, ...], result: Path, probe: Path, output: Path) -> None:
    code = 1
    try:
        atexit._clear()  # what the parent does at its end is not for the child
        os.setpgid(0, 0)
        os.chdir(folder)
        for number, path in ((1, output), (2, output.with_suffix(".err"))):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.environ.update({"OMP_NUM_THREADS": "1", "ATTACK_RESULT": str(result), ORIGIN: str(time.time_ns())})
        torch.set_num_threads(1)
        sys.argv, sys.path[0] = ["train.py"], str(folder)
        if settings:
            fit(pass_plan(probe, Plan(from_words(list(settings), all_knobs()))), probe)
        runpy.run_path("train.py", run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            atexit._run_exitfuncs()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
