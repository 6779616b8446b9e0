"""How quickly a stored run answers: `hotlap report` of a small one, `hotlap diagnose` of one of 100,000 steps.

usage: python bench/stored.py [--steps 100000] [--rounds 5]
The long run is a small real one, its steps repeated with some scatter. Every command runs in a fresh process.
"""

from __future__ import annotations

import argparse
import itertools
import random
import shutil
import statistics
import subprocess
import tempfile
import time
from array import array
from dataclasses import replace
from pathlib import Path

from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.timeline import Steps, Timeline
from interleave import BENCH, PYTHON, host_line

SCRIPT = BENCH.parent / "tests" / "loops" / "raw.py"
COMMANDS = (
    ("report", "small", "--format", "json"),
    ("report", "small"),
    ("diagnose", "long"),
    ("report", "long"),
)
LOOKS = 2048  # the most that a run keeps


def record(folder: Path) -> Path:
    """A real profile of a small script."""
    command = [
        PYTHON,
        "-m",
        "hotlap",
        "profile",
        "--steps",
        "40",
        "--experiments",
        "off",
        "--out",
        "small",
        str(SCRIPT),
    ]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "small"


def lengthen(small: Path, count: int) -> Path:
    """The same run with as many steps as asked for."""
    long = small.with_name("long")
    shutil.copytree(small, long)
    (seen,) = read_timelines(small / "timeline.arrow")
    write_timelines(long / "timeline.arrow", [_longer(seen, count)])
    return long


def _longer(seen: Timeline, count: int) -> Timeline:
    dice = random.Random(1)
    picks = [dice.randrange(seen.steady_from, len(seen.steps)) for _ in range(count)]
    scatter = [dice.uniform(0.9, 1.1) for _ in range(count)]
    stages = {
        stage: array("q", (int(column[pick] * each) for pick, each in zip(picks, scatter, strict=True)))
        for stage, column in seen.steps.stages.items()
    }
    wall = array("q", map(sum, zip(*stages.values(), strict=True)))
    start = array("q", itertools.accumulate(wall[:-1], initial=0))
    names = ("samples", "tokens", "padded", "micro")
    rest = {name: array("q", (getattr(seen.steps, name)[pick] for pick in picks)) for name in names}
    looks = [
        replace(seen.gauges[index % len(seen.gauges)], t=start[-1] * index // LOOKS) for index in range(LOOKS)
    ]
    steps = Steps(start=start, wall=wall, stages=stages, **rest)
    return replace(seen, steps=steps, steady_from=0, gauges=tuple(looks))


def seconds(folder: Path, rounds: int, *words: str) -> float:
    """Median wall time of a command of hotlap."""
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([PYTHON, "-m", "hotlap", *words], cwd=folder, check=True, capture_output=True)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(host_line())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small = record(folder)
        long = lengthen(small, options.steps)
        size = (long / "timeline.arrow").stat().st_size / 1e6
        print(f"the long run has {options.steps:,} steps, its timeline takes {size:.1f} MB")
        for words in COMMANDS:
            print(f"hotlap {' '.join(words):28} {seconds(folder, options.rounds, *words):6.2f} s")
        print(f"{'report.html of the long run':35} {(long / 'report.html').stat().st_size / 1e6:6.2f} MB")


if __name__ == "__main__":
    main()
