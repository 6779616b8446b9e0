"""One run of the loader bench, in a process of its own: `python bench/loader_runs.py CASE VARIANT`.

Writes its figures as JSON into the file that BENCH_FIGURES names.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import queue
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.bucketing import BucketBatchSampler, pad_collate
from hotlap.data.decode import Audio
from hotlap.data.loader import Loader

LEARNING = 200  # batches that live tuning may take
WARM = 20  # batches of a fixed setting that are not counted
MEASURED_S = 1.5
ROWS = 16  # of a batch that is handed over
LOOK_EVERY = 8  # batches: how often a worker times the making of one
CLIPS = 96


class Ready(Dataset[torch.Tensor]):
    """Whole batches that the worker holds ready as arrays: nothing is left to make, only to hand over."""

    def __init__(self, mebibytes: int, batches: int) -> None:
        self.arrays = [np.random.default_rng(seed).random(mebibytes << 17) for seed in range(4)]
        self.count = batches

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.arrays[index % 4])  # a new tensor: torch moves those that it has sent


class Rows(Dataset[torch.Tensor]):
    """Rows that torch's collate stacks. Now and then the worker times how long that takes it, into memory it has."""

    def __init__(self, mebibytes: int, batches: int) -> None:
        self.rows = torch.randn(ROWS, (mebibytes << 18) // ROWS)
        self.count, self.calls = batches * ROWS, 0
        self.warm = torch.zeros_like(self.rows)
        self.looks: Any = multiprocessing.Array("d", batches)  # seconds; what is still zero was not taken

    def __len__(self) -> int:
        return self.count

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        self.calls += 1
        if self.calls % LOOK_EVERY == 0:
            began = time.perf_counter()
            torch.stack(self._fetched(indices), out=self.warm)
            self.looks[self.calls // LOOK_EVERY] = time.perf_counter() - began
        return self._fetched(indices)

    def _fetched(self, indices: list[int]) -> list[torch.Tensor]:
        return [self.rows[index % ROWS] for index in indices]


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


class Clips(Dataset[torch.Tensor]):
    """Sound of 1 to 8 s at 16 kHz in files of one kind, mapped into memory and decoded by what `Audio` chooses."""

    def __init__(self, suffix: str) -> None:
        folder = Path(f"clips-{suffix}")
        if not folder.exists():
            folder.mkdir()
            _write_clips(folder, suffix)
        self.contents = [np.memmap(each, mode="r") for each in sorted(folder.iterdir())]
        self.decode = Audio()

    def __len__(self) -> int:
        return 100 * len(self.contents)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(self.decode(memoryview(self.contents[index % len(self.contents)])))


def _write_clips(folder: Path, suffix: str) -> None:
    """Harmonics under a moving envelope and a little noise, so that a decoder has work to do."""
    random = np.random.default_rng(0)
    for number in range(CLIPS):
        at = np.arange(int(random.uniform(1.0, 8.0) * 16_000)) / 16_000
        voice = sum(np.sin(2 * np.pi * order * (120 + number) * at) / order for order in range(1, 12))
        sound = 0.2 * voice * np.clip(np.sin(14 * at), 0, 1) + 0.003 * random.normal(size=len(at))
        soundfile.write(folder / f"{number:03}.{suffix}", sound, 16_000, subtype="PCM_16")


def main(case: str, variant: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    figures = {"handover": handover, "tuning": tuning, "busy": busy}[case.partition(":")[0]](case, variant)
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


def handover(_: str, variant: str) -> dict[str, float]:
    """Microseconds a batch, from one worker that has nothing else to do, whole and without what making it takes."""
    build: Callable[..., Any] = Loader if variant == "hotlap" else DataLoader
    figures: dict[str, float] = {}
    for mebibytes, count in ((1, 800), (16, 80)):
        ready = build(Ready(mebibytes, count + WARM), batch_size=None, num_workers=1)
        figures[f"ready_{mebibytes}"] = _from_one_to_the_next(iter(ready), count)
        rows = Rows(mebibytes, count + WARM)
        whole = _from_one_to_the_next(iter(build(rows, batch_size=ROWS, num_workers=1)), count)
        making = statistics.median(look for look in rows.looks if look) * 1e6
        figures |= {f"rows_{mebibytes}": whole, f"making_{mebibytes}": making}
        figures[f"beyond_{mebibytes}"] = max(1.0, whole - making * (1 + 1 / LOOK_EVERY))
    return figures


def _from_one_to_the_next(batches: Iterator[Any], count: int) -> float:
    for _ in range(WARM):
        next(batches)
    began = time.perf_counter()
    for _ in range(count):
        next(batches)
    return (time.perf_counter() - began) / count * 1e6


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

    def stop(self) -> None:
        """A thread that still runs when the interpreter ends would take it down."""
        self.steps.put(None)
        self.thread.join()


def busy(case: str, variant: str) -> dict[str, float]:
    """Share of its time that the accelerator computes."""
    kind = case.partition(":")[2]
    ours = variant == "hotlap"
    build: Callable[..., Any] = Loader if ours else DataLoader
    workers = {} if ours else {"num_workers": int(variant.rpartition("-")[2])}
    batches = _endless(build(**_fed(kind), **workers))
    accelerator = Accelerator(0.002 if kind == "windows" else 0.02)
    for _ in range(LEARNING if ours else WARM):
        accelerator.steps.put(next(batches))
    before, began = accelerator.busy_s, time.perf_counter()
    while time.perf_counter() - began < 2 * MEASURED_S:
        accelerator.steps.put(next(batches))
    share = (accelerator.busy_s - before) / (time.perf_counter() - began)
    accelerator.stop()
    return {"busy": share}


def _fed(kind: str) -> dict[str, Any]:
    """What the loader of a kind is built with."""
    if kind == "windows":
        return {"dataset": Windows(), "batch_size": 512, "shuffle": True}
    if kind == "sequences":
        data = Sequences()
        sampler = BucketBatchSampler(data.lengths.tolist(), 32)
        return {"dataset": data, "batch_sampler": sampler, "collate_fn": pad_collate}
    return {"dataset": Clips(kind), "batch_size": 16, "shuffle": True, "collate_fn": pad_collate}


if __name__ == "__main__":
    main(*sys.argv[1:])
