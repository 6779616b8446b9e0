"""The loop whose overhead is measured: about 5 ms a step on one thread, timed by itself, watched in one of many ways.

usage: loop.py WATCHER STEPS    where WATCHER is none, cprofile, torch-profiler, gpuprof, lightning or lightning-simple
"""

from __future__ import annotations

import cProfile
import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 384
WARM_UP = 30


def build() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any]]:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(
        nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)
    )
    data = TensorDataset(torch.randn(8192, 64), torch.randint(0, 10, (8192,)))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, batch_size=160)


def train(steps: int, after_step: Callable[[], None]) -> list[tuple[float, float]]:
    """Wall and CPU seconds of each step."""
    model, optimizer, loader = build()
    criterion = nn.CrossEntropyLoss()
    walls: list[tuple[float, float]] = []
    while len(walls) < steps:
        wall, cpu = time.perf_counter(), time.process_time()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            after_step()
            now, used = time.perf_counter(), time.process_time()
            walls.append((now - wall, used - cpu))
            wall, cpu = now, used
    return walls[:steps]


def train_lightning(steps: int, profiler: str | None) -> list[tuple[float, float]]:
    """The same model under Lightning's Trainer, for the profiler that Lightning brings."""
    import lightning

    class Net(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.optimizer, self.loader = build()
            self.criterion = nn.CrossEntropyLoss()
            self.ends: list[tuple[float, float]] = []

        def training_step(self, batch: Any) -> torch.Tensor:
            return self.criterion(self.model(batch[0]), batch[1])

        def on_train_batch_end(self, *_: Any) -> None:
            self.ends.append((time.perf_counter(), time.process_time()))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.optimizer

        def train_dataloader(self) -> DataLoader[Any]:
            return self.loader

    net = Net()
    trainer = lightning.Trainer(
        max_steps=steps, profiler=profiler, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    trainer.fit(net)
    return [(after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(net.ends)]


def watched(watcher: str, steps: int) -> list[tuple[float, float]]:
    if watcher == "cprofile":
        with cProfile.Profile():
            return train(steps, lambda: None)
    if watcher == "torch-profiler":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            return train(steps, profiler.step)
    if watcher == "gpuprof":
        import gpuprof

        with gpuprof.profile("loop"):
            return train(steps, lambda: None)
    if watcher.startswith("lightning"):
        return train_lightning(steps, watcher.partition("-")[2] or None)
    return train(steps, lambda: None)


if __name__ == "__main__":
    times = watched(sys.argv[1], int(sys.argv[2]))[WARM_UP:]
    walls, cpus = [wall for wall, _ in times], [cpu for _, cpu in times]
    figures = {
        "median_us": statistics.median(walls) * 1e6,
        "p10_us": statistics.quantiles(walls, n=10)[0] * 1e6,
        "cpu_us": statistics.fmean(cpus) * 1e6,
    }
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))
