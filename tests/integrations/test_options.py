"""Settings of a plan reach the options of real trainers, from the command line to what the trainer then does."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """`planned(script, **settings)`: what the script saw of itself under the plan, and what hotlap tells of it."""

    def run(script, **settings):
        folder = tmp_path_factory.mktemp(Path(script).stem)
        words = [f"--set={key.replace('_', '-')}={value}" for key, value in settings.items()]
        command = [sys.executable, "-m", "hotlap", "run", "--out", "run", *words, TESTS / script]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
        )
        assert done.returncode == 0, done.stderr[-3000:]
        applied = json.loads((folder / "run/applied.json").read_text())
        assert (folder / "run/log.txt").read_text() == ""
        return SimpleNamespace(**json.loads((folder / "seen.json").read_text())), applied["fitted"]

    return run


def places(fitted):
    return {each["knob"]: each["place"] for each in fitted if each["acts"]}


def test_lightning(planned):
    seen, fitted = planned(
        "options/lightning_run.py",
        precision="bf16-mixed",
        accumulate=2,
        scale_lr="linear",
        log_every=4,
        validate_every=32,
        limit_validation=0.1,
        checkpoint_every=3,
        monitor_budget=0.2,
    )
    assert places(fitted) == {**dict.fromkeys(places(fitted), "lightning"), "scale-lr": ""}
    assert len(fitted) == 8
    assert seen.calls["training"] == 64
    assert (seen.accumulate, seen.steps) == (4, 16)  # twice the script's own 2
    assert (seen.precision, seen.log_every, seen.logged) == ("bf16-mixed", 4, 4)
    assert (
        seen.calls["validation"] == 2
    )  # twice, each time one batch of five: a tenth of them, but at least one
    assert seen.saved == sorted(f"step={step}.ckpt" for step in (3, 6, 9, 12, 15))
    assert 1 <= seen.calls["monitor"] < 64
    assert (seen.calls["monitor epochs"], seen.calls["patient"]) == (2, 64)
    assert (seen.keys, seen.rates, seen.signature) == (["net.bias", "net.weight"], [0.1], True)


def test_hugging_face_trainer(planned):
    seen, fitted = planned(
        "options/hf_run.py",
        precision="bf16-mixed",
        batch_size=4,
        accumulate=4,
        scale_lr="sqrt",
        log_every=2,
        validate_every=3,
        limit_validation=0.1,
        checkpoint_every=4,
        monitor_budget=0.2,
    )
    assert places(fitted) == {**dict.fromkeys(places(fitted), "hf-trainer"), "scale-lr": ""}
    assert len(fitted) == 9
    assert (seen.calls["training"], seen.steps) == (64, 8)  # 32 batches of 4, 8 of them to a step
    assert seen.calls["bf16"] == seen.calls["training"] + seen.calls["validation"]
    assert seen.logged == 4
    assert seen.evaluated == [3, 6, 8]
    assert seen.calls["validation"] == 3  # each time a tenth of 64 rows: one batch
    assert seen.saved == ["checkpoint-4", "checkpoint-8"]
    assert 1 <= seen.calls["monitor"] < 8
    assert seen.calls["monitor epochs"] == 2
    # The step's batch grew twice: the rate is on its way to sqrt(2) times as much, and the script's own is untouched.
    assert seen.rates == sorted(seen.rates)
    assert 0.1 < seen.rates[0] < seen.rates[-1] < 0.1 * 2**0.5
    assert seen.rate == 0.1


def test_mmengine(planned):
    seen, fitted = planned(
        "options/mmengine_run.py",
        accumulate=2,
        log_every=5,
        validate_every=32,
        limit_validation=0.2,
        checkpoint_every=30,
        monitor_budget=0.2,
    )
    assert places(fitted) == dict.fromkeys(places(fitted), "mmengine")
    assert len(fitted) == 6
    assert (seen.calls["training"], seen.calls["steps"]) == (64, 16)  # twice the script's own 2
    assert seen.scheduled == 16  # with the steps, not with the batches
    assert seen.log_every == 5
    assert seen.calls["validation"] == 4  # after two epochs of 16 batches, and again: two batches of ten
    assert seen.saved == ["epoch_2.pth", "epoch_4.pth"]
    assert 1 <= seen.calls["monitor"] < 64
    assert seen.keys == ["net.bias", "net.weight"]
