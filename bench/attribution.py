"""Is time booked where it was spent? A delay of known size is planted in one stage after the other.

usage: python bench/attribution.py [--ms 20] [--steps 60] [--rounds 3]
Each planted run is set against the same script without a delay, run right before it. The planted script times its
own delays, since a sleep takes a little longer than asked for; right is within 5 % or 0.3 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

from interleave import BENCH, PYTHON, host_line

SCRIPT = BENCH.parent / "tests" / "planted_stages" / "raw_loop.py"
STAGES = ("data", "transfer", "forward", "backward", "optimizer", "log", "validate", "checkpoint", "other")
WITHIN_SHARE, WITHIN_MS = 0.05, 0.3


def measure(stage: str, ms: float, steps: int, folder: Path) -> tuple[dict[str, float], float]:
    """Median milliseconds a step by stage, and the median delay that was really planted."""
    command = [
        PYTHON,
        "-m",
        "hotlap",
        "profile",
        "--full",
        "--out",
        "run",
        "--json",
        "view.json",
        str(SCRIPT),
    ]
    arguments = ["--stage", stage, "--ms", str(ms), "--steps", str(steps)]
    subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)
    view = json.loads((folder / "view.json").read_text())
    planted = json.loads((folder / "planted.json").read_text())["seconds"].get(stage) or [0.0]
    return {name: each["p50"] for name, each in view["stages"].items()}, statistics.median(planted) * 1e3


def one(stage: str, ms: float, steps: int, folder: Path) -> tuple[float, float, str]:
    """Planted and booked milliseconds, and the stage that grew most."""
    without, _ = measure("none", ms, steps, folder)
    planted_run, planted = measure(stage, ms, steps, folder)
    grown = {name: planted_run[name] - without.get(name, 0.0) for name in planted_run}
    return planted, grown[stage], max(grown, key=lambda name: grown[name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ms", type=float, default=20.0)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(host_line())
    print(f"{'planted in':12} {'delay':>10} {'booked there':>14} {'error':>8}   stage that grew most")
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            runs = [one(stage, options.ms, options.steps, Path(folder)) for _ in range(options.rounds)]
            planted, booked = (statistics.median(run[at] for run in runs) for at in (0, 1))
            names = {run[2] for run in runs}
            right = abs(booked - planted) <= max(WITHIN_SHARE * planted, WITHIN_MS) and names == {stage}
            missed += not right
            error = (booked - planted) / planted
            note = "" if right else "   MISSED"
            print(f"{stage:12} {planted:7.2f} ms {booked:11.2f} ms {error:+8.1%}   {', '.join(names)}{note}")
    print(
        f"\ntarget: the right stage, within 5 % or 0.3 ms, for all {len(STAGES)}: {missed or 'none'} missed"
    )


if __name__ == "__main__":
    main()
