"""One run of the loader bench, in a process of its own: `python bench/loader_runs.py CASE VARIANT`.

Writes its figures as JSON into the file that BENCH_FIGURES names.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.bucketing import BucketBatchSampler, pad_collate
from hotlap.data.loader import Loader

LEARNING = 200  # batches that live tuning may take
WARM = 20  # batches of a fixed setting that are not counted
MEASURED_S = 1.5
ROWS = 16  # of a batch that is handed over


class Ready(Dataset[torch.Tensor]):
    """Items that exist already in the worker: all that is left is to collate them and to hand them over."""

    def __init__(self, mebibytes: int, batches: int) -> None:
        self.items = torch.randn(ROWS, (mebibytes << 18) // ROWS)
        self.count = batches * ROWS

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.items[index % ROWS]


class Costly(Dataset[torch.Tensor]):
    """Items that compute, wait, or mostly cost little and now and then wait long."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.kind == "computing":
            sum(number * number for number in range(12_000))
        elif self.kind == "waiting":
            time.sleep(0.004)
        elif index % 200 == 199:
            time.sleep(0.06)
        else:
            sum(number * number for number in range(400))
        return torch.full((64,), float(index))


class Windows(Dataset[torch.Tensor]):
    """Windows of 50 rows of a recording, many at once."""

    def __init__(self, rows: int = 200_000) -> None:
        recording = torch.randn(rows, 12)
        self.windows = recording.unfold(0, 50, 1).transpose(1, 2)

    def __len__(self) -> int:
        return len(self.windows)

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return list(self.windows[torch.tensor(indices)])


class Sequences(Dataset[torch.Tensor]):
    """Sequences of very different lengths, behind one another in one array."""

    def __init__(self, count: int = 50_000) -> None:
        random = np.random.default_rng(0)
        self.lengths = np.clip(random.lognormal(5.2, 0.9, count), 8, 3000).astype(int)
        self.ends = np.cumsum(self.lengths)
        self.tokens = torch.from_numpy(random.integers(0, 30_000, int(self.ends[-1])))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        end = int(self.ends[index])
        return self.tokens[end - int(self.lengths[index]) : end]


def main(case: str, variant: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    figures = {"handover": handover, "tuning": tuning, "busy": busy}[case.partition(":")[0]](case, variant)
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


def handover(_: str, variant: str) -> dict[str, float]:
    """Microseconds from batch to batch, with one worker that has nothing else to do, and without making them."""
    figures: dict[str, float] = {}
    for mebibytes, count in ((1, 400), (16, 60)):
        data = Ready(mebibytes, count + 20)
        kind: Callable[..., Any] = Loader if variant == "hotlap" else DataLoader
        batches = iter(kind(data, batch_size=ROWS, num_workers=1))
        for _ in range(20):
            next(batches)
        began = time.perf_counter()
        for batch in batches:
            assert batch.numel() == mebibytes << 18
        took = (time.perf_counter() - began) / count * 1e6
        figures |= {f"us_{mebibytes}": took, f"net_us_{mebibytes}": max(1.0, took - _making(data))}
    return figures


def _making(data: Ready) -> float:
    """Microseconds that a batch takes without being handed over."""
    batches = iter(DataLoader(data, batch_size=ROWS))
    next(batches)
    began = time.perf_counter()
    for _ in range(20):
        next(batches)
    return (time.perf_counter() - began) / 20 * 1e6


def tuning(case: str, variant: str) -> dict[str, float]:
    """Batches a second, after what live tuning may take to learn; the consumer of uneven batches takes 4 ms."""
    kind = case.partition(":")[2]
    way, *numbers = variant.rsplit("-", 2)
    options: dict[str, Any] = {}
    if way != "auto":
        workers, ahead = map(int, numbers)
        options = {"way": way, "num_workers": workers, "prefetch": ahead}
    batches = iter(Loader(Costly(kind), batch_size=8, **options))
    step = 0.004 if kind == "uneven" else 0.0
    _consume(batches, step, LEARNING if way == "auto" else WARM, None)
    count, seconds = _consume(batches, step, None, MEASURED_S)
    return {"rate": count / seconds}


def _consume(
    batches: Iterator[Any], step: float, most: int | None, most_s: float | None
) -> tuple[int, float]:
    began, count = time.perf_counter(), 0
    while (most is None or count < most) and (most_s is None or time.perf_counter() - began < most_s):
        next(batches)
        count += 1
        if step:
            time.sleep(step)
    return count, time.perf_counter() - began


def _endless(loader: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from loader


class Accelerator:
    """Sleeps for each step, as a device computes beside the host; two steps can wait in its queue."""

    def __init__(self, step_s: float) -> None:
        self.step_s, self.busy_s = step_s, 0.0
        self.steps: queue.Queue[Any] = queue.Queue(2)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while self.steps.get() is not None:
            began = time.perf_counter()
            time.sleep(self.step_s)
            self.busy_s += time.perf_counter() - began


def busy(case: str, variant: str) -> dict[str, float]:
    """Share of its time that the accelerator computes."""
    kind = case.partition(":")[2]
    ours = variant == "hotlap"
    build: Callable[..., Any] = Loader if ours else DataLoader
    workers = {} if ours else {"num_workers": int(variant.rpartition("-")[2])}
    if kind == "windows":
        batches = _endless(build(Windows(), batch_size=512, shuffle=True, **workers))
        accelerator = Accelerator(0.002)
    else:
        data = Sequences()
        sampler = BucketBatchSampler(data.lengths.tolist(), 32)
        batches = _endless(build(data, batch_sampler=sampler, collate_fn=pad_collate, **workers))
        accelerator = Accelerator(0.02)
    for _ in range(LEARNING):
        accelerator.steps.put(next(batches))
    before, began = accelerator.busy_s, time.perf_counter()
    while time.perf_counter() - began < 2 * MEASURED_S:
        accelerator.steps.put(next(batches))
    return {"busy": (accelerator.busy_s - before) / (time.perf_counter() - began)}


if __name__ == "__main__":
    main(*sys.argv[1:])
