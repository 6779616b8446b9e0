"""A thread of one's own fetches the next batches while the model trains."""

import argparse
import queue
import random
import threading

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--dump")
args = parser.parse_args()


class Prefetcher:
    def __init__(self, loader):
        self.batches = queue.Queue(maxsize=2)
        threading.Thread(target=self.fill, args=(loader,), daemon=True).start()

    def fill(self, loader):
        for batch in loader:
            self.batches.put(batch)
        self.batches.put(None)

    def __iter__(self):
        return iter(self.batches.get, None)


random.seed(0), np.random.seed(0), torch.manual_seed(0)
rows = 128 * args.steps
data = TensorDataset(torch.randn(rows, 256), torch.randint(0, 10, (rows,)))
model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step, (x, y) in enumerate(Prefetcher(DataLoader(data, batch_size=128)), start=1):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step}: loss {loss.item():.4f}")

if args.dump:
    state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
    torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
