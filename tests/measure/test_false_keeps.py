"""The rules of a search, simulated: little is kept for nothing, and what helps is found through a drifting pace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "false_keeps.py"


def shares(*words: str) -> dict[tuple[int, int], list[float]]:
    """In per cent: what was kept at a gain of 0, 5 and 10, by the scatter between runs and between rounds; of a machine
    with two paces, by how often it changes."""
    command = [sys.executable, BENCH, "--searches", "300", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines() if not line.startswith("between")]
    rows = [[float(word.rstrip("%")) for word in words] for words in lines]
    return {(round(run), round(pace)): kept for run, pace, *kept in rows}


@pytest.fixture(scope="module")
def kept() -> dict[tuple[int, int], list[float]]:
    return shares()


@pytest.fixture(scope="module")
def kept_by_experiments() -> dict[tuple[int, int], list[float]]:
    return shares("--experiments")


def test_little_is_kept_for_nothing(kept):
    assert max(each[0] for each in kept.values()) < 8.0
    assert kept[2, 0][0] < 3.0


def test_what_helps_is_found(kept):
    assert kept[2, 0][2] > 99.0
    assert kept[3, 8][2] > 95.0  # by all runs, which the pace scatters, it would be less than half


def test_what_helps_is_found_on_a_machine_with_two_paces(kept):
    """Means over all rounds would find a tenth of it less; nothing more is kept for it."""
    assert kept[2, 20][2] > 72.0
    assert kept[2, 20][0] < 5.0


def test_experiments_keep_less_for_nothing_and_find_more(kept, kept_by_experiments):
    assert max(each[0] for each in kept_by_experiments.values()) < 4.0
    assert all(kept_by_experiments[machine][2] >= kept[machine][2] for machine in kept_by_experiments)
    assert kept_by_experiments[5, 8][2] > 90.0
