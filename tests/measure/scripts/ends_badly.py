"""Trains, and fails in what it does at the end, however it came to its end."""

import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
try:
    while True:
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
finally:
    raise RuntimeError("planted: the results could not be saved")
