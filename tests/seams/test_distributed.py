"""Knobs of several ranks: two real ones under torchrun, and one alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hotlap.knobs.ddp_buckets import DdpBuckets
from hotlap.knobs.static_graph import StaticGraph
from hotlap.plan.catalogue import some_knobs
from hotlap.ports.target import Distributed
from hotlap.seams import distributed
from hotlap.seams.fitter import Fitter

SCRIPT = Path(__file__).parents[1] / "options/ddp_run.py"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def test_two_ranks_are_wrapped_as_the_plan_says(tmp_path):
    settings = ("ddp-buckets=3", "static-graph=true", "sync-batchnorm=off", "accumulate=2")
    words = [f"--set={each}" for each in settings]
    command = [sys.executable, "-m", "hotlap", "run", "--out", "run", *words, "--", *TORCHRUN, SCRIPT]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert (seen["bucket_mb"], seen["view"], seen["static"]) == (3.0, True, True)
    assert (seen["norm"], seen["plain"]) == ("SyncBatchNorm", "Linear")  # with two ranks it is needed
    assert seen["same"]
    assert seen["changes"] == 4  # of eight batches for each rank
    assert seen["keys"] == ["0.bias", "0.weight", "2.bias", "2.weight"]
    applied = json.loads((tmp_path / "run/applied.json").read_text())
    assert {each["knob"] for each in applied["fitted"] if each["acts"]} == {
        each.partition("=")[0] for each in settings
    }
    assert done.stderr.count("applied accumulate=2") == 1  # the first rank tells for all


@pytest.fixture
def alone():
    """One process, under a plan with every knob of ranks."""
    settings = {"sync-batchnorm": "off", "ddp-buckets": 3, "static-graph": True}
    fitter = Fitter(settings, some_knobs(settings))
    distributed.install(fitter)
    yield fitter
    fitter.undo()


def test_one_rank_keeps_its_batch_norm_and_computes_the_same(alone):
    torch.manual_seed(0)
    x, norm = torch.randn(16, 4), nn.BatchNorm1d(4)
    model = nn.Sequential(norm)
    assert nn.SyncBatchNorm.convert_sync_batchnorm(model)[0] is norm
    assert [(each.knob, each.acts, each.place) for each in alone.fitted] == [
        ("sync-batchnorm", True, "Sequential")
    ]
    alone.undo()
    synced = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(4))
    assert isinstance(synced, nn.SyncBatchNorm)
    assert torch.equal(norm(x), synced(x))
    assert torch.equal(norm.running_var, synced.running_var)
    assert norm.state_dict().keys() == synced.state_dict().keys()


def test_several_ranks_keep_their_synchronised_layers(alone, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    model = nn.Sequential(nn.Sequential(nn.BatchNorm1d(4)), nn.BatchNorm1d(4))
    kinds = [type(each) for each in nn.SyncBatchNorm.convert_sync_batchnorm(model).modules()]
    assert kinds == [nn.Sequential, nn.Sequential, nn.SyncBatchNorm, nn.SyncBatchNorm]
    (record,) = alone.fitted
    assert not record.acts
    assert "4 ranks share" in record.reason


@pytest.mark.parametrize(
    ("knob", "setting", "changed"),
    [
        (
            DdpBuckets(),
            50,
            {"bucket_cap_mb": 50, "gradient_as_bucket_view": True, "find_unused_parameters": True},
        ),
        (StaticGraph(), True, {"bucket_cap_mb": 10, "static_graph": True}),
        (StaticGraph(), False, {"bucket_cap_mb": 10, "static_graph": False, "find_unused_parameters": True}),
    ],
)
def test_arguments_are_changed_and_put_back(knob, setting, changed):
    given = {"bucket_cap_mb": 10, "find_unused_parameters": True}
    target = Distributed(dict(given))
    undo = knob.apply(target, setting)
    assert target.arguments == changed
    undo()
    assert target.arguments == given


def test_one_process_has_no_gradients_to_exchange(alone):
    reasons = {each.knob: each.reason for each in alone.unmet()}
    assert "no gradients to exchange" in reasons["ddp-buckets"]
    assert "no gradients to exchange" in reasons["static-graph"]
    assert "converts no BatchNorm" in reasons["sync-batchnorm"]
