"""A validation is placed at the call that starts it, whatever runs inside."""

from __future__ import annotations

import pytest

from hotlap.facts.timeline import Stage

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
train, valid = DataLoader(data, batch_size=8), DataLoader(data, batch_size=8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def losses():
    model.eval()
    with torch.no_grad():
        found = [nn.functional.mse_loss(model(x), y) for x, y in valid]
    model.train()
    return found


def train_epoch():
    for number, (x, y) in enumerate(train):
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 4 and INSIDE:
            losses()  # inside


def main():
    losses()  # before training
    for _ in range(4):
        train_epoch()
        if not INSIDE:
            losses()  # after


main()
"""


@pytest.mark.parametrize(("inside", "marked"), [(True, "# inside"), (False, "# after")])
def test_it_is_the_line_of_the_training_loop_that_leads_there(run_script, inside, marked):
    script = SCRIPT.replace("INSIDE", str(inside))
    cadences = {each.stage: each for each in run_script(script).timeline.cadences}
    lines = script.splitlines()
    assert lines[cadences[Stage.VALIDATE].place.line - 1].endswith(marked)
