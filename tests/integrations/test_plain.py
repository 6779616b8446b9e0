"""What raw loops use: loggers, progress bars and savers that are installed here are really reached."""

import pytest

_OPTIONAL = {"tensorboardX.writer", "wandb.sdk.wandb_run", "mlflow.tracking.client", "aim.sdk.run"}

_SCRIPT = """
import warnings

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file
from torch.optim.swa_utils import AveragedModel
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

weights = {"w": torch.ones(3)}
with SummaryWriter("board") as writer:
    for step in tqdm(range(3), mininterval=0):
        writer.add_scalar("loss", step, step)
    writer.add_histogram("weights", weights["w"])
save_file(weights, "weights.safetensors")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    dcp.save(weights, checkpoint_id="sharded", no_dist=True)
model = torch.nn.Linear(2, 2)
AveragedModel(model).update_parameters(model)
"""


@pytest.fixture(scope="module")
def run(record, tmp_path_factory):
    script = tmp_path_factory.mktemp("plain") / "script.py"
    script.write_text(_SCRIPT)
    (only,) = record("plain", [script])
    return only


def test_every_point_of_what_is_installed_exists(run):
    assert run.missing == []
    assert set(run.absent) <= _OPTIONAL


@pytest.mark.parametrize(
    ("point", "stage", "calls"),
    [
        ("SummaryWriter.add_scalar", "log", 3),
        ("SummaryWriter.add_histogram", "log", 1),
        ("SummaryWriter.close", "log", 1),
        ("torch.distributed.checkpoint.state_dict_saver.save", "checkpoint", 1),
        ("safetensors.torch.save_file", "checkpoint", 1),
        ("AveragedModel.update_parameters", "optimizer", 1),
    ],
)
def test_a_call_is_its_stage(run, point, stage, calls):
    assert run.stages[point] == stage
    assert run.calls[point] == calls


def test_a_progress_bar_is_log_each_time_it_is_drawn(run):
    assert run.stages["tqdm.refresh"] == "log"
    assert run.calls["tqdm.refresh"] >= 1


def test_no_framework_is_named(run):
    assert run.notes == []
