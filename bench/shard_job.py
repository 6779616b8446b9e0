"""One reader on all workloads of bench/shards.py that it has a way for: rates, and digests of what came out.

usage: python bench/shard_job.py READER FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from shard_readers import READERS

SECONDS = 0.5
"""Of one measurement; passes over the data are repeated until it is over."""


def digest(batches: Iterable[Any]) -> int:
    """The same for the same samples in any order: a sum over rows, without their padding."""
    total = 0
    for values, lengths in batches:
        rows = np.asarray(values)
        for row, length in zip(rows, lengths, strict=True):
            total += zlib.crc32(np.ascontiguousarray(row[: int(length)]).view(np.uint8).data)
    return total % 2**40


def rate(epoch: Callable[[], Iterator[Any]], count: Callable[[Any], int]) -> float:
    """Samples (or tokens) a second, after one pass that warms up."""
    for _ in epoch():
        pass
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < SECONDS:
        for batch in epoch():
            done += count(batch)
    return done / (time.perf_counter() - began)


def samples_in(batch: Any) -> int:
    return len(batch[1])


def tokens_in(batch: Any) -> int:
    return int(np.asarray(batch[1]).sum())


def padding(batches: Iterable[Any]) -> float:
    """Share of what was yielded that is no token."""
    real = whole = 0
    for values, lengths in batches:
        real, whole = real + int(np.asarray(lengths).sum()), whole + np.asarray(values).size
    return 1.0 - real / whole


def main() -> None:
    torch.set_num_threads(1)
    reader, folder = sys.argv[1], Path(sys.argv[2])
    figures: dict[str, float] = {}
    for workload, ways in READERS[reader]().items():
        count = tokens_in if workload == "sequences" else samples_in
        best = 0.0
        for way in ways:  # a reader is shown in its best setting
            epoch = partial(way, folder)
            try:
                seen = 0 if reader == "bound" else digest(epoch())
                best = max(best, rate(epoch, count))
            except Exception as error:  # a peer may fail on one workload and do another
                print(f"{workload}: {type(error).__name__}: {error}", file=sys.stderr)
                continue
            figures[f"{workload}-digest"] = seen
            if workload == "sequences" and reader == "hotlap":
                figures["padding"] = padding(epoch())
            figures[workload] = best
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
