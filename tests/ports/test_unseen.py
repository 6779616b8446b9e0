"""Warnings show the line of the script that they show without hotlap."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.runs

SCRIPT = """
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("always")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 1)

    def forward(self, x):
        warnings.warn("the caller of forward", stacklevel=4)
        return self.inner(x)


loader = DataLoader(TensorDataset(torch.randn(8, 8), torch.randn(8, 1)), batch_size=4)
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
scheduler.step()
for x, y in loader:
    optimizer.zero_grad()
    out = net(x)
    loss = nn.functional.mse_loss(out, y.squeeze())
    loss.backward()
    float(loss)
    optimizer.step()
scheduler.step(3)
torch.amp.GradScaler("cuda", enabled=True)
net.register_full_backward_hook(lambda *_: None)
net(x).sum().backward()
"""
PLAN = ("fused-optimizer=fused", "precision=bf16-mixed", "loader=true")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    script = tmp_path_factory.mktemp("warns") / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    lines = shown([sys.executable, script.name], script.parent)
    assert len(lines) >= 9, lines  # each kind has warned
    return script, lines


def shown(command: list[str], folder: Path) -> list[str]:
    """Warnings by place and kind; of those behind a model's call with hooks, torch's own line differs."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    found = re.findall(r"^(\S+:\d+): (\w+: [\w ]+)", done.stderr, re.M)
    return [f"{Path(place).name} {what}" for place, what in found if "module.py" not in place]


def test_a_profile_leaves_warnings_at_their_lines(plain: tuple[Path, list[str]]) -> None:
    script, lines = plain
    command = [sys.executable, "-m", "hotlap", "profile", "--experiments", "off", script.name]
    assert shown(command, script.parent) == lines


def test_a_plan_leaves_warnings_at_their_lines(plain: tuple[Path, list[str]]) -> None:
    script, lines = plain
    settings = [word for each in PLAN for word in ("--set", each)]
    assert shown([sys.executable, "-m", "hotlap", "run", *settings, script.name], script.parent) == lines
