"""`hotlap diff`: two stored runs side by side."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from hotlap.facts.arrow import read_timelines, write_timelines
from hotlap.facts.timeline import Stage


@pytest.fixture
def mended(stored):
    """The same run with its data stage at a tenth, as a second run beside it."""
    other = stored.with_name("99991231-235959-mended")
    shutil.copytree(stored, other)
    (timeline,) = read_timelines(other / "timeline.arrow")
    stages = {name: list(column) for name, column in timeline.steps.stages.items()}
    stages[Stage.DATA] = [spent // 10 for spent in stages[Stage.DATA]]
    walls = [sum(parts) for parts in zip(*stages.values(), strict=True)]
    steps = replace(timeline.steps, stages=stages, wall=walls)
    write_timelines(other / "timeline.arrow", [replace(timeline, steps=steps, workers=(), lines=())])
    return other


def test_what_changed_is_told_stage_by_stage(hotlap, stored, mended):
    hotlap("diagnose", "mended")
    said = hotlap("diff", "train", "last")
    assert said.code == 0
    assert "Two single profiles are not a proof" in said.out
    row = next(line for line in said.out.splitlines() if line.startswith("  data "))
    assert row.endswith(" 0.10x")
    assert "  gone " in said.out and "item-cpu-bound" in said.out
    assert max(len(line) for line in said.out.splitlines()) <= 100


def test_json(hotlap, stored, mended, folder):
    diff = json.loads(hotlap("diff", "train", "mended", "--json", "-").out)
    assert diff["schema"] == 1 and diff["before"]["run"].endswith("train")
    assert diff["stages"]["data"]["ms"]["ratio"] == pytest.approx(0.1, abs=0.01)
    assert diff["throughput"]["steps_per_s"]["ratio"] > 1
    assert diff["differences"] == [] and diff["same_machine"]
    hotlap("diff", "train", "mended", "--json", "diff.json")
    assert json.loads((folder / "diff.json").read_text()) == diff


def test_a_run_does_not_differ_from_itself(hotlap, stored):
    diff = json.loads(hotlap("diff", "last", "last", "--json", "-").out)
    assert diff["findings"]["gone"] == diff["findings"]["appeared"] == diff["differences"] == []
    assert {pair["ms"]["ratio"] for pair in diff["stages"].values()} == {1.0}


def test_chinese(hotlap, stored):
    assert "两次单独的测量不能作为证明" in hotlap("diff", "last", "last", "--lang", "zh").out


def test_a_run_that_is_not_there_is_told(hotlap, stored):
    said = hotlap("diff", "last", "nope")
    assert (said.code, said.out) == (2, "") and "there is no run 'nope'" in said.err
