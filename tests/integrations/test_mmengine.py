"""MMEngine as it is installed: every point is there and on the path of a real run."""

import pytest

_OFF_THE_PATH = {
    "FlexibleRunner.save_checkpoint",
    "TestLoop.run",
    "_InfiniteDataloaderIterator.__next__",
    "BaseAveragedModel.update_parameters",
    "CheckpointHook._save_best_checkpoint",
    "Visualizer.add_image",
    "Visualizer.add_scalar",
    "Visualizer.add_datasample",
}


@pytest.fixture(scope="module")
def run(record):
    (only,) = record("mmengine", ["loops/mmengine_runner.py", "--steps", "20"])
    return only


def test_every_point_exists(run):
    assert run.missing == []
    assert run.absent == []


def test_every_point_is_on_the_path_of_a_run(run):
    assert {point for point, calls in run.calls.items() if not calls} <= _OFF_THE_PATH


def test_counts_are_those_of_the_run(run):
    assert run.calls["LoggerHook.after_train_iter"] == 20
    assert run.calls["ValLoop.run"] == 1
    assert run.calls["Runner.save_checkpoint"] == 1


def test_a_batch_is_cast_once_however_many_tensors_it_holds(run):
    batches = 20 + run.calls["ValLoop.run"] * 3
    assert run.calls["SimpleNamespace.cast_data"] == batches


def test_train_names_the_framework(run):
    assert dict(run.notes)["framework"] == "mmengine"
