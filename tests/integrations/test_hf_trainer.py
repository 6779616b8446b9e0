"""The Trainer of transformers as it is installed: every point is there and on the path of a real run."""

from pathlib import Path

import pytest

_OFF_THE_PATH = {"Trainer.predict"}


@pytest.fixture(scope="module")
def both(record):
    plain = ["loops/hf_trainer.py", "--steps", "20"]
    return record("hf-trainer", plain, ["planted_stages/hf_loop.py", "--stage", "none", "--steps", "10"])


@pytest.fixture
def run(both):
    return both[0]


@pytest.fixture
def overridden(both):
    return both[1]


def test_every_point_exists(run):
    assert run.missing == []
    assert run.absent == []


def test_every_point_is_on_the_path_of_a_run(run):
    assert {point for point, calls in run.calls.items() if not calls} <= _OFF_THE_PATH


def test_counts_are_those_of_the_run(run):
    assert run.calls["Trainer._maybe_log_save_evaluate"] == 20 // 5
    assert run.calls["Trainer.evaluate"] == 1
    assert run.calls["Trainer._save_checkpoint"] == 1


def test_train_names_the_framework(run):
    assert dict(run.notes)["framework"] == "hf-trainer"


def test_cadences_are_placed_where_their_arguments_are(run):
    file, line, _ = dict(run.notes)["trainer_place"]
    assert "TrainingArguments(" in Path(file).read_text(encoding="utf-8").splitlines()[line - 1]


def test_an_override_that_never_calls_its_parent_is_reached(overridden):
    assert overridden.calls["MyTrainer.compute_loss"] >= 10
    assert overridden.calls["Trainer.compute_loss"] == 0
    assert overridden.stages["MyTrainer.compute_loss"] == "forward"
