"""How long `make check` takes, step by step: the steps are those of the Makefile, in a tree where mypy has run before.

usage: python bench/check.py [--rounds N]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from pathlib import Path

from interleave import host_line

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 60


def steps() -> list[str]:
    """What `make check` runs; the set-up of .venv is left out."""
    planned = subprocess.run(
        ["make", "-n", "check"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [line for line in planned.splitlines() if line.startswith(".venv/bin/") and " pip " not in line]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(host_line())
    commands = steps()
    subprocess.run(".venv/bin/mypy", cwd=ROOT, capture_output=True)
    taken: list[list[float]] = []
    for _ in range(rounds):
        taken.append([])
        for command in commands:
            began = time.perf_counter()
            subprocess.run(command.split(), cwd=ROOT, capture_output=True, check=True)
            taken[-1].append(time.perf_counter() - began)
    for command, seconds in zip(commands, zip(*taken, strict=True), strict=True):
        print(f"{statistics.median(seconds):6.1f} s  {command.removeprefix('.venv/bin/')}")
    totals = [sum(each) for each in taken]
    word = "reached" if max(totals) <= LIMIT_S else "MISSED"
    print(
        f"make check: {min(totals):.1f} to {max(totals):.1f} s in {rounds} rounds, at most {LIMIT_S} s: {word}"
    )


if __name__ == "__main__":
    main()
