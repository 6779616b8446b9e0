"""A small model on random rows. What is planted to be wrong is named on the command line."""

import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

wrong = set(sys.argv[1:])


class Forgetful(torch.optim.SGD):
    """Drops every other update."""

    calls = 0

    def step(self, closure=None):
        Forgetful.calls += 1
        if Forgetful.calls % 2:
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.grad.zero_()
        return super().step(closure)


if "unforked" in wrong and "unforked" in Path(f"/proc/{os.getppid()}/cmdline").read_text():
    raise RuntimeError("planted: not in a process that was forked from another of its kind")
if "seeded" in wrong:
    torch.manual_seed(7)
rows = torch.randn(256, 12)
if "generator" in wrong:
    rows = torch.from_numpy(np.random.default_rng((1, 2)).standard_normal((256, 12), np.float32))
labels = rows[:, :3].sum(1, keepdim=True)
model = nn.Sequential(nn.Linear(12, 16), nn.Dropout(0.1), nn.ReLU(), nn.Linear(16, 1))
kind = Forgetful if "forgetful" in wrong else torch.optim.SGD
optimizer = kind(model.parameters(), lr=0.05)
own = torch.Generator().manual_seed(3) if "generator" in wrong else None
sampler = [index // 2 for index in range(256)] if "repeats" in wrong else None
for epoch in range(1000):
    for x, y in DataLoader(
        TensorDataset(rows, labels), batch_size=16, sampler=sampler, shuffle=sampler is None, generator=own
    ):
        if "dies" in wrong and epoch == 1:
            raise RuntimeError("planted")
        if "hangs" in wrong and epoch == 1:
            time.sleep(1000)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        if "underflows" in wrong:  # as fp16 does to gradients without a scaled loss: small ones are lost
            for parameter in model.parameters():
                parameter.grad = (parameter.grad * 2**-24).half().float() * 2**24
        optimizer.step()
