"""Show hotlap at work: make the printer recipe's data in a temporary folder and profile its training.

The recipe is slow on purpose; the report says why, and at which line.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hotlap.errors import HotlapError

_STEPS = 20
_MAKE_DATA = "hotlap_recipes.printer_tcn.make_data"
_TRAIN = ("-m", "hotlap_recipes.printer_tcn.train", "--data_dir", "data_simulation_*", "--size", "tiny")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep", metavar="DIR", help="work in this folder and keep it (default: a temporary one)"
    )


def run(options: argparse.Namespace) -> int:
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        return _show(Path(options.keep))
    with tempfile.TemporaryDirectory(prefix="hotlap-demo-") as folder:
        return _show(Path(folder))


def _show(folder: Path) -> int:
    print("$ python -m hotlap_recipes.printer_tcn.make_data", flush=True)
    made = subprocess.run([sys.executable, "-m", _MAKE_DATA, "--out", "."], cwd=folder, check=False)
    if made.returncode:
        raise HotlapError("the recipe's data could not be made.", "pip install 'hotlap[recipes]'")
    command = ["profile", "--steps", str(_STEPS), *_TRAIN]
    print(f"$ hotlap {' '.join(command)}", flush=True)
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.call([sys.executable, "-m", "hotlap", *command], cwd=folder, env=environment)
