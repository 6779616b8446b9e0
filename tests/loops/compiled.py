"""A compiled model: `module.compile()` in place, or a whole-graph `torch.compile` (`--fullgraph`)."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--fullgraph", action="store_true")
parser.add_argument("--dump")
args = parser.parse_args()

random.seed(0), np.random.seed(0), torch.manual_seed(0)
x = torch.randn(1024, 256)
loader = DataLoader(TensorDataset(x, x[:, :10].argmax(1)), batch_size=128, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inside, self.outside = nn.Linear(256, 768), nn.Linear(768, 10)

    def forward(self, x):
        # The cast is inside on purpose: it is what a patched Tensor.to would break a full graph with.
        return self.outside(torch.relu(self.inside(x.to(torch.float32))))


model = Net()
if args.fullgraph:
    train_model = torch.compile(model, fullgraph=True)
else:
    model.compile()
    train_model = model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

step = 0
while step < args.steps:
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(train_model(x.double()), y)
        loss.backward()
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
        if step == args.steps:
            break

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
