"""The small promises: how long `hotlap --help` takes, and how much a run of a million steps writes.

usage: python bench/limits.py
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from hotlap.facts.arrow import write_timelines
from hotlap.facts.timeline import Ending, ProbeCost, Runtime, Timeline, Warmup
from hotlap.probe import marks
from hotlap.probe.marks import Kind
from hotlap.probe.ring import Ring
from hotlap.timeline.fold import fold
from hotlap.timeline.gather import read_integers
from interleave import PYTHON, host_line

STEPS = 1_000_000
STEPS_A_FLUSH = 250  # a quarter of a second of 1 ms steps
PATTERN = (Kind.DATA, Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.STEP)


def help_seconds() -> tuple[float, float]:
    """Medians of `hotlap --help` and of an empty Python, run in turn."""
    pairs = [(_timed("-m", "hotlap", "--help"), _timed("-c", "pass")) for _ in range(9)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def _timed(*arguments: str) -> float:
    started = time.perf_counter()
    subprocess.run([PYTHON, *arguments], check=True, capture_output=True)
    return time.perf_counter() - started


def written_bytes(folder: Path) -> tuple[int, int, int]:
    """Bytes of marks and of the timeline for a million steps of 11 marks, and steps thinned out."""
    ring = Ring(folder / "1.marks")
    t = 0
    for step in range(STEPS):
        for kind in PATTERN:
            ring.append(t << 8 | marks.enter(kind))
            t += 200_000
            ring.append(t << 8 | marks.leave(kind))
        ring.append(0 << 8 | marks.OPTIMIZER_ID)
        if step % STEPS_A_FLUSH == 0:
            ring.flush()
    ring.close()
    seen = fold(read_integers(folder / "1.marks"))
    timeline = Timeline(
        rank=0, world=1, pid=1, ending=Ending.FINISHED, steps=seen.columns.steps(), steady_from=1,
        warmup=Warmup(0.0, 1, 0.0), runtime=Runtime(threads=1), probe=ProbeCost(0.0, 0.0, 11.0, 0),
    )  # fmt: skip
    write_timelines(folder / "timeline.arrow", [timeline])
    return (folder / "1.marks").stat().st_size, (folder / "timeline.arrow").stat().st_size, seen.dropped_steps


def main() -> None:
    print(host_line())
    helped, empty = help_seconds()
    print(f"hotlap --help: {helped:.3f} s, of which {empty:.3f} s are Python itself; target 0.3 s")
    with tempfile.TemporaryDirectory() as folder:
        raw, timeline, dropped = written_bytes(Path(folder))
    total = (raw + timeline) / 1e6
    print(
        f"{STEPS:,} steps: {raw / 1e6:.1f} MB of marks, {timeline / 1e6:.1f} MB of timeline, {total:.1f} MB in all"
    )
    print(f"target 64 MB; {dropped:,} steps were thinned out and counted")


if __name__ == "__main__":
    main()
