"""A stream: an IterableDataset that two workers share, one row at a time."""

import argparse
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--workers", type=int, default=2)
parser.add_argument("--dump")
args = parser.parse_args()


class Stream(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        worker = get_worker_info()
        first, stride = (worker.id, worker.num_workers) if worker else (0, 1)
        for row in range(first, self.rows, stride):
            values = np.random.default_rng(row).standard_normal(256, dtype=np.float32)
            yield torch.from_numpy(values), int(values.sum() > 0)


if __name__ == "__main__":
    random.seed(0), np.random.seed(0), torch.manual_seed(0)
    loader = DataLoader(Stream(128 * args.steps), batch_size=128, num_workers=args.workers)
    model = nn.Sequential(nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (x, y) in enumerate(loader, start=1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")

    if args.dump:
        state = {"params": model.state_dict(), "rng": torch.get_rng_state()}
        torch.save(state | {"python": random.getstate(), "numpy": np.random.get_state()}, args.dump)
