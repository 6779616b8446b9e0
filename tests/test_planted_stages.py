"""A delay of known size is found in the stage that it was planted in, and in no other.

Every stage gets a delay in every second step. What a stage takes longer in these steps than in the others must be its
own delay: one that was booked elsewhere is missing here and too much there. Both kinds of step come from the same run,
so that a machine that is busy for a while slows both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median

import pytest

from hotlap.facts.arrow import read_timelines

SCRIPTS = Path(__file__).parent / "planted_stages"
RAW = ("data", "transfer", "forward", "backward", "optimizer", "log", "validate", "checkpoint", "other")
LIGHTNING = ("transfer", "forward", "log", "validate", "checkpoint", "other")
HF = ("forward", "log", "validate", "checkpoint", "other")
STEPS, DELAY_MS = 40, 30
# A delay in the wrong place is off by all of it. Half of it leaves room for a busy machine, on which the stages
# themselves are never quite the same; how exact the booking is, bench/attribution.py says.
TOLERANCE = 0.5
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
        self.stages = {stage.value: column[WARMUP:] for stage, column in timeline.steps.stages.items()}
        slept = json.loads((folder / "planted.json").read_text())["seconds"]
        self.delays = {stage: median(each[WARMUP // 2 :]) * 1e3 for stage, each in slept.items() if each}

    def longer(self, stage: str) -> float:
        # Whichever half it is: what follows the optimizer's step is booked in the step after.
        return abs(median(self.stages[stage][::2]) - median(self.stages[stage][1::2])) / 1e6


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
    planted, _ = run
    errors = {stage: planted.longer(stage) - planted.delays.get(stage, 0.0) for stage in planted.stages}
    assert {stage: error for stage, error in errors.items() if abs(error) > TOLERANCE * DELAY_MS} == {}


def test_two_workers_hide_half_of_what_items_take(tmp_path):
    run = Planted(tmp_path, "raw_loop.py", "--stage", "data", "--workers", "2")
    # Their batches come in pairs, so a step waits for half a delay on average, less what it computes meanwhile.
    assert 0.2 * DELAY_MS < mean(run.stages["data"]) / 1e6 < 0.6 * DELAY_MS
