"""The rules of a search, simulated: little is kept for nothing, and what helps is found through a drifting pace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "false_keeps.py"


@pytest.fixture(scope="module")
def kept() -> dict[tuple[int, int], list[float]]:
    """In per cent: what was kept at a gain of 0, 5 and 10, by the scatter between runs and between rounds."""
    done = subprocess.run(
        [sys.executable, BENCH, "--searches", "300"], capture_output=True, text=True, check=True
    )
    rows = [[float(word.rstrip("%")) for word in line.split()] for line in done.stdout.splitlines()[1:]]
    return {(round(run), round(pace)): shares for run, pace, *shares in rows}


def test_little_is_kept_for_nothing(kept):
    assert max(shares[0] for shares in kept.values()) < 9.0
    assert kept[2, 0][0] < 3.0


def test_what_helps_is_found(kept):
    assert kept[2, 0][2] > 99.0
    assert kept[3, 8][2] > 95.0  # by all runs, which the pace scatters, it would be less than half
