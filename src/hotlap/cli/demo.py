"""Show all of hotlap at work on a recipe that is slow on purpose: profile, tune, compare, report.

It takes a few minutes. The data, the plan and the report stay in the folder, to be opened and tried further.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

from hotlap.errors import HotlapError, UsageError

FOLDER = "hotlap-demo"
_HOME, _IGNORE, _DATA = ".hotlap", ".gitignore", "data_simulation_*"
_MAKE_DATA = ("-m", "hotlap_recipes.printer_tcn.make_data", "--layers", "2")
_TRAIN = (
    "-m", "hotlap_recipes.printer_tcn.train", "--data_dir", _DATA, "--size", "tiny", "--batch_size", "128",
)  # fmt: skip
_TUNED = f"{_HOME}/tune/train"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", metavar="DIR", default=FOLDER, help=f"where it works (default {FOLDER})")


def run(options: argparse.Namespace) -> int:
    folder = prepared(Path(options.keep))
    for words in commands(folder):
        print(f"$ {_typed(words)}", flush=True)
        code = subprocess.call(_started(words), cwd=folder, env={**os.environ, "COLUMNS": "100"})
        if code:
            raise HotlapError(f"{words[0]} {words[1]} ended with {code}.", "pip install 'hotlap[recipes]'")
        print(flush=True)
    print(f"The page: {(folder / _TUNED / 'report.html').resolve().as_uri()}")
    return 0


def commands(folder: Path) -> list[list[str]]:
    """What a user would type in that folder, in its order."""
    make_data = [] if list(folder.glob(_DATA)) else [["python", *_MAKE_DATA]]
    return [
        *make_data,
        ["hotlap", "profile", "--steps", "20", *_TRAIN],
        ["hotlap", "tune", "--budget", "60s", *_TRAIN],
        ["hotlap", "compare", "--budget", "6", "none", f"{_TUNED}/plan.yaml", "--", *_TRAIN],
        ["hotlap", "report", _TUNED],
    ]


def prepared(folder: Path) -> Path:
    """The folder, without what an earlier demo measured in it; one that is not ours is left alone."""
    if folder.exists() and any(folder.iterdir()) and not (folder / _IGNORE).is_file():
        raise UsageError(f"{folder} is there and is not of hotlap's demo.", "name another with --keep DIR")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _IGNORE).write_text("*\n")
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}.", "name another with --keep DIR"
        ) from None
    shutil.rmtree(folder / _HOME, ignore_errors=True)
    return folder


def _typed(words: list[str]) -> str:
    """As it is typed, in lines that fit."""
    return " \\\n    ".join(
        textwrap.wrap(shlex.join(words), 94, break_long_words=False, break_on_hyphens=False)
    )


def _started(words: list[str]) -> list[str]:
    """The same with this interpreter, which may be another than the one of the shell."""
    rest = words[1:]
    return [sys.executable, *rest] if words[0] == "python" else [sys.executable, "-m", "hotlap", *rest]
