"""A delay of known size is found in the stage that it was planted in, and in no other.

Every stage gets a delay in every second step. The script times each stage with a stopwatch of its own: what is booked
must be what the stopwatch says, step by step. Where a framework does some work of a stage outside of what a script can
time, that work is known from the steps without a delay. Neither depends on how busy the machine is: whatever makes a
stage take longer is on the stopwatch too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median

import pytest

from hotlap.facts.arrow import read_timelines

SCRIPTS = Path(__file__).parent / "planted_stages"
pytestmark = pytest.mark.alone
RAW = ("data", "transfer", "forward", "backward", "optimizer", "log", "validate", "checkpoint", "other")
LIGHTNING = ("transfer", "forward", "log", "validate", "checkpoint", "other")
HF = ("forward", "log", "validate", "checkpoint", "other")
STEPS, DELAY_MS = 40, 30
WITHIN_SHARE, WITHIN_MS = 0.05, 0.3  # what attribution promises: one or the other
NO_DELAY = (
    0.5  # of one: a stage without a delay is not timed by the script, and its quickest step says enough
)
WARMUP = 18  # the last look for new modules is after the 16th step


class Planted:
    """One run: what every second step took longer, by stage, and the delays as the script timed them (ms)."""

    def __init__(self, folder: Path, script: str, *arguments: str) -> None:
        command = ("-m", "hotlap", "profile", "--full", "--out", "run", str(SCRIPTS / script), *arguments)
        environment = os.environ | {"PYTHONPATH": str(SCRIPTS.parents[1] / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *command, "--ms", str(DELAY_MS), "--steps", str(STEPS)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (timeline,) = read_timelines(folder / "run" / "timeline.arrow")
        self.stages = {
            stage.value: [ns / 1e6 for ns in column] for stage, column in timeline.steps.stages.items()
        }
        self.workers = timeline.workers
        written = json.loads((folder / "planted.json").read_text())
        self.delays = {stage: median(each) * 1e3 for stage, each in written["seconds"].items() if each}
        self.clock = {
            stage: {int(step): ms for step, ms in steps.items()} for stage, steps in written["clock"].items()
        }

    def unexplained(self, stage: str, of: Callable[[list[float]], float] = median) -> tuple[float, float]:
        """What is booked beyond the script's stopwatch: in steps with a delay, and in those without."""
        column, shift = self.stages[stage], self._shift(stage)
        beyond = {
            row: column[row] - self.clock.get(stage, {}).get(row - shift, 0.0)
            for row in range(WARMUP, len(column))
        }
        halves = [[ms for row, ms in beyond.items() if (row - shift) % 2 == half] for half in (0, 1)]
        return of(halves[0]), of(halves[1])

    def _shift(self, stage: str) -> int:
        """What follows the optimizer's step is booked in the step after."""
        column = self.stages[stage][WARMUP:]
        return int(sum(column[1::2]) > sum(column[::2]))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("raw_loop.py", RAW), id="raw"),
        pytest.param(("lightning_loop.py", LIGHTNING), id="lightning"),
        pytest.param(("hf_loop.py", HF), id="hf"),
    ],
)
def run(request, tmp_path_factory):
    script, stages = request.param
    needs = {"lightning_loop.py": "lightning", "hf_loop.py": "transformers"}.get(script, "torch")
    if find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    folder = tmp_path_factory.mktemp("planted")
    return Planted(folder, script, "--stage", ",".join(stages), "--every", "2"), stages


def test_every_delay_was_really_made(run):
    planted, stages = run
    assert set(planted.delays) == set(stages)
    assert min(planted.delays.values()) >= DELAY_MS


def test_every_stage_took_its_own_delay_and_no_other(run):
    planted, stages = run
    errors = {}
    for stage in planted.stages:
        delay = planted.delays.get(stage)
        delayed, plain = planted.unexplained(stage, median if delay else min)
        bound = max(WITHIN_SHARE * delay, WITHIN_MS) if delay else NO_DELAY * DELAY_MS
        elsewhere = 0.0 if stages is RAW else plain  # a loop of one's own can be timed whole
        if abs(delayed - elsewhere) > bound:
            errors[stage] = delayed - elsewhere
    assert errors == {}


def test_two_workers_hide_part_of_what_items_take(tmp_path):
    run = Planted(tmp_path, "raw_loop.py", "--stage", "data", "--workers", "2")
    exposed, timed = run.stages["data"][WARMUP:], [run.clock["data"][step] for step in range(WARMUP, STEPS)]
    errors = [booked - ms for booked, ms in zip(exposed, timed, strict=True)]
    assert abs(median(errors)) <= max(WITHIN_SHARE * mean(timed), WITHIN_MS)
    made = sum(worker.fetch_s for worker in run.workers) / sum(worker.batches for worker in run.workers) * 1e3
    assert made >= DELAY_MS
    # Two of them work at the same time, so that a step waits for half of it, less what it computes meanwhile.
    assert mean(exposed) < 0.8 * made
