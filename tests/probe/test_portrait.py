"""What is written down of a model: its precision, whether it is compiled, and where it computes."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

from hotlap.probe.portrait import model_portrait

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning.pytorch as pl


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)
        self.register_buffer("mean", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, rows):
        return self.net(rows - self.mean)


class Stepping(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.compile(nn.Linear(4, 1))

    def training_step(self, batch):
        return self.net(batch).sum()


def test_buffers_compute_too_and_counters_do_not():
    portrait = model_portrait(Scaled())
    assert portrait["dtypes"] == ["float32", "float64"]
    assert portrait["place"][2] == "Scaled.forward" and not portrait["compiled"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, as it imports its compiler
def test_a_module_that_only_steps_computes_in_its_step():
    portrait = model_portrait(Stepping())
    assert portrait["place"][2] == "Stepping.training_step"
    assert portrait["compiled"], "a part of it is"
