"""A small training job whose items cost what they are told to: CPU time, waiting, or next to nothing."""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Items(Dataset[torch.Tensor]):
    """Rows that are scaled for a while, waited for, or both; `cached` keeps them once they are made."""

    def __init__(self, count: int, width: int, cpu_ms: float, wait_ms: float, cached: bool) -> None:
        self.rows = np.random.default_rng(0).normal(size=(count, width)).astype(np.float32)
        self.cpu_s, self.wait_s = cpu_ms / 1e3, wait_ms / 1e3
        self.made = [self.make(index) for index in range(count)] if cached else None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.made[index] if self.made else self.make(index)

    def make(self, index: int) -> torch.Tensor:
        until = time.thread_time() + self.cpu_s
        row = self.rows[index]
        while time.thread_time() < until:
            row = np.tanh(row)
        if self.wait_s:
            time.sleep(self.wait_s)
        return torch.from_numpy(row)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cpu-ms", type=float, default=0.0)
    parser.add_argument("--wait-ms", type=float, default=0.0)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--cached", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    items = Items(options.batch * 40, options.width, options.cpu_ms, options.wait_ms, options.cached)
    workers = options.workers
    loader = DataLoader(
        items,
        batch_size=options.batch,
        shuffle=True,
        num_workers=workers,
        prefetch_factor=options.prefetch if workers else None,
        persistent_workers=workers > 0,
    )
    model = nn.Sequential(
        nn.Linear(options.width, options.hidden),
        nn.ReLU(),
        nn.Linear(options.hidden, options.hidden),
        nn.ReLU(),
        nn.Linear(options.hidden, 8),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:  # hotlap ends it
        for batch in loader:
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    main()
