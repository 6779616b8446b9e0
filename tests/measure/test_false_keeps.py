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
def kept_live() -> dict[tuple[int, int], list[float]]:
    return shares("--live")


@pytest.fixture(scope="module")
def kept_of_opening() -> dict[tuple[int, int], list[float]]:
    return shares("--opening")


def test_what_was_predicted_to_help_is_thrown_out_less_often(kept, kept_of_opening):
    """The price: more stays that brings nothing, on restless machines most of all."""
    assert all(kept_of_opening[machine][1] > kept[machine][1] for machine in kept_of_opening)
    assert kept_of_opening[2, 0][0] < 5.0
    assert kept_of_opening[10, 0][0] < 40.0


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


def test_blocks_of_steps_keep_less_for_nothing_and_find_more(kept, kept_live):
    assert max(each[0] for each in kept_live.values()) < 4.0
    assert all(kept_live[machine][1] > kept[machine][1] for machine in kept_live)
    assert kept_live[5, 8][1] > 90.0
