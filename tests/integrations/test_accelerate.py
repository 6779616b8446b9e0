"""Accelerate as it is installed: every point is there and on the path of a real run."""

import pytest

_OFF_THE_PATH = {"Accelerator.clip_grad_value_", "Accelerator.save", "Accelerator.save_model"}


@pytest.fixture(scope="module")
def both(record):
    """Its own loop comes second, so that nothing is known of it while the trainer of transformers runs."""
    own = ["loops/accelerate_loop.py", "--steps", "20"]
    return record("accelerate", ["loops/hf_trainer.py", "--steps", "2"], own)


@pytest.fixture
def run(both):
    return both[1]


def test_every_point_exists(run):
    assert run.missing == []
    assert run.absent == []


def test_every_point_is_on_the_path_of_a_run(run):
    assert {point for point, calls in run.calls.items() if not calls} <= _OFF_THE_PATH


def test_counts_are_those_of_the_run(run):
    assert run.calls["Accelerator.clip_grad_norm_"] == 20
    assert run.calls["Accelerator.save_state"] == 1
    assert run.calls["Accelerator.log"] == 5
    assert run.calls["accelerate.data_loader.send_to_device"] >= 20


def test_prepare_names_the_framework(run):
    assert run.notes == [["framework", "accelerate"]]


def test_the_trainer_of_transformers_is_not_taken_for_it(both):
    run = both[0]
    assert run.notes == []
    assert run.calls["Accelerator.clip_grad_norm_"] == 2
