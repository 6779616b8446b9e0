"""Every kind of loop that hotlap attaches to: how much of the time is named, and whether training stays bit-equal.

usage: python bench/loops.py [--steps 60]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from interleave import BENCH, PYTHON, host_line

LOOPS = BENCH.parent / "tests" / "loops"
TARGET, RECIPE = 0.90, 0.97
IDENTITY_STEPS = 30


def command_of(script: Path) -> list[str]:
    if script.stem == "ddp":
        return ["--", PYTHON, "-m", "torch.distributed.run", "--nproc_per_node", "2", str(script)]
    return [str(script)]


def coverage(script: Path, steps: int, folder: Path) -> tuple[float, int]:
    """Named share of the steady wall time, and the number of steady steps."""
    profile = [PYTHON, "-m", "hotlap", "profile", "--full", "--out", "run", "--json", "view.json"]
    _run([*profile, *command_of(script), "--steps", str(steps)], folder)
    view = json.loads((folder / "view.json").read_text())
    return view["coverage"], view["step"]["n"]


def identical(script: Path, folder: Path) -> bool:
    """Whether parameters and random state after 30 steps are bit-equal with and without the probe."""
    arguments = ["--steps", str(IDENTITY_STEPS), "--dump"]
    alone = [PYTHON, *command_of(script)] if script.stem != "ddp" else command_of(script)[1:]
    _run([*alone, *arguments, "alone.pt"], folder)
    profile = [PYTHON, "-m", "hotlap", "profile", "--full", "--out", "run2"]
    _run([*profile, *command_of(script), *arguments, "probed.pt"], folder)
    compare = (
        "import sys; sys.path.insert(0, sys.argv[3]); from same import same; print(same(*sys.argv[1:3]))"
    )
    dumps = sorted(each.name for each in folder.glob("alone.pt*"))  # one for each rank
    pairs = [(each, each.replace("alone", "probed")) for each in dumps]
    checked = [_run([PYTHON, "-c", compare, *pair, str(BENCH)], folder) for pair in pairs]
    return bool(checked) and all(each.strip().endswith("True") for each in checked)


def recipe(folder: Path) -> tuple[float, int]:
    """Named share and steady steps of printer_tcn as it is written."""
    _run([PYTHON, "-m", "hotlap_recipes.printer_tcn.make_data", "--layers", "2"], folder)
    profile = [
        PYTHON,
        "-m",
        "hotlap",
        "profile",
        "--steps",
        "30",
        "--experiments",
        "off",
        "--json",
        "view.json",
    ]
    train = ["-m", "hotlap_recipes.printer_tcn.train", "--data_dir", "data_simulation_*", "--size", "tiny"]
    _run([*profile, *train], folder)
    view = json.loads((folder / "view.json").read_text())
    return view["coverage"], view["step"]["n"]


def _run(argv: list[str], folder: Path) -> str:
    return subprocess.run(argv, cwd=folder, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    print(host_line())
    print(f"{'loop':22} {'steps':>6} {'named share':>12}   bit-equal after {IDENTITY_STEPS} steps")
    with tempfile.TemporaryDirectory() as folder:
        share, steps = recipe(Path(folder))
    print(
        f"{'printer_tcn':22} {steps:6} {share:12.1%}   -{'' if share >= RECIPE else '   MISSED'}", flush=True
    )
    for script in sorted(LOOPS.glob("*.py")):
        with tempfile.TemporaryDirectory() as folder:
            share, steps = coverage(script, options.steps, Path(folder))
            same = identical(script, Path(folder))
        note = "" if share >= TARGET and same else "   MISSED"
        print(f"{script.stem:22} {steps:6} {share:12.1%}   {'yes' if same else 'NO'}{note}", flush=True)


if __name__ == "__main__":
    main()
