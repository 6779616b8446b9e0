"""The jobs that plans are searched for: `data`, `compute` and `mixed`, named by what holds their time.

usage: python bench/tune_job.py data|compute|mixed [--epochs 1000] [--workers 0] [--slower 0.05] [--threads 1]
Written as people write it: one thread of control, one loader, settings as torch has them by default.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PIXELS, CLASSES = 16, 10


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Made from their number, after `rounds` of filtering: items that are the same whenever they are asked for."""

    def __init__(self, count: int, rounds: int, pixels: int) -> None:
        self.count, self.rounds, self.pixels = count, rounds, pixels

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        rows = np.arange(3 * self.pixels**2, dtype=np.float32).reshape(3, self.pixels, self.pixels)
        picture = np.sin(rows * (1 + index % 97))
        for _ in range(self.rounds):
            picture = (picture + np.roll(picture, 1, 1) + np.roll(picture, 1, 2)) / 3
        return torch.from_numpy(picture), index % CLASSES


def network(width: int, depth: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))


JOBS = {  # items, rounds of filtering, pixels, width, depth, batch
    "data": (512, 40, 16, 8, 1, 16),
    "compute": (512, 0, 16, 32, 3, 16),
    "mixed": (512, 24, 16, 16, 2, 16),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--prefetch", type=int)
    parser.add_argument(
        "--slower", type=float, default=0.0, help="share of a step to waste: a planted slow-down"
    )
    parser.add_argument("--threads", type=int, help="of torch; fewer scatter less on a small machine")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    items, rounds, pixels, width, depth, batch = JOBS[options.job]
    torch.manual_seed(0)
    model = network(width, depth)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Pictures(items, rounds, pixels),
        batch_size=batch,
        shuffle=True,
        num_workers=options.workers,
        prefetch_factor=options.prefetch,
    )
    began = time.process_time()
    for _ in range(options.epochs):
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if options.slower:
                # Of CPU time: a job that is held meanwhile must not find its delay over when it goes on.
                until = time.process_time() + options.slower * (time.process_time() - began)
                while time.process_time() < until:
                    pass
                began = time.process_time()


if __name__ == "__main__":
    main()
