"""Lightning as it is installed: every point is there and on the path of a real run."""

from pathlib import Path

import pytest

# Staged for the other progress bar, and for calls that the script under test does not make.
_OFF_THE_PATH = {
    "TQDMProgressBar.on_train_batch_end",
    "TQDMProgressBar.on_train_epoch_end",
    "RichProgressBar.on_train_batch_end",
    "RichProgressBar.on_train_epoch_end",
}
_FABRIC = {
    "Fabric.save",
    "Fabric.log",
    "Fabric.log_dict",
    "Fabric.to_device",
    "lightning.fabric.wrappers.move_data_to_device",
    "lightning_fabric.wrappers.move_data_to_device",
}


@pytest.fixture(scope="module")
def both(record):
    trainer = ["loops/lightning_trainer.py", "--steps", "20"]
    return record("lightning", trainer, ["loops/fabric_loop.py", "--steps", "20"])


@pytest.fixture
def trainer(both):
    return both[0]


@pytest.fixture
def fabric(both):
    return both[1]


def test_every_point_exists_in_both_packages(trainer):
    assert trainer.missing == []
    assert trainer.absent == []


def test_every_point_is_on_the_path_of_a_run(trainer):
    assert {point for point, calls in trainer.calls.items() if not calls} <= _OFF_THE_PATH | _FABRIC


def test_counts_are_those_of_the_run(trainer):
    assert trainer.calls["Strategy.training_step"] == 20
    assert trainer.calls["_EvaluationLoop.run"] == 2  # the sanity check, and the one after 20 steps
    assert trainer.calls["LightningModule.log"] >= 20
    assert trainer.calls["Trainer.save_checkpoint"] >= 1
    assert trainer.calls["_DataFetcher.__next__"] >= 20


def test_a_progress_bar_is_log(trainer):
    bars = ("RichProgressBar", "TQDMProgressBar")  # which one is drawn depends on whether rich is installed
    assert sum(trainer.calls[f"{bar}.on_train_batch_end"] for bar in bars) == 20


def test_fit_names_the_framework_and_its_precision(trainer):
    noted = dict(trainer.notes)
    assert (noted["framework"], noted["autocast"]) == ("lightning", None)


def test_cadences_are_placed_where_the_trainer_is_built(trainer):
    file, line, _ = dict(trainer.notes)["trainer_place"]
    assert "Trainer(" in Path(file).read_text(encoding="utf-8").splitlines()[line - 1]


def test_fabric_names_itself_and_its_stages(fabric):
    assert fabric.notes == [["framework", "fabric"]]  # not `lightning`, although that is imported too
    assert fabric.calls["Fabric.log"] == 4
    assert fabric.calls["Fabric.save"] == 1
    assert fabric.calls["lightning.fabric.wrappers.move_data_to_device"] >= 20
