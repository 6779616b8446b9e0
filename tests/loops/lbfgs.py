"""LBFGS: the optimizer calls a closure with forward and backward several times in one step."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
x = torch.randn(2048, 64)
loader = DataLoader(TensorDataset(x, torch.sin(x.sum(1, keepdim=True))), batch_size=256, shuffle=True)
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4, history_size=5)

step = 0
while step < args.steps:
    for x, y in loader:

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        step += 1
        if step % 10 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
