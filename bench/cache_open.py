"""What it costs to compare a file cache with its checksums when it is opened, beside reading it and CRC-32 of it.

    python bench/cache_open.py [--gib 1] [--rounds 8]

The three take turns on one file, which the system has in memory. `read` is the least that any comparison costs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import zlib
from pathlib import Path

import numpy as np

from hotlap.data.cache.build import AT_ONCE, checksum_of
from hotlap.stats.compare import trimmed
from interleave import host_line

_BLOCK = 1 << 26


def read(path: Path) -> None:
    buffer = bytearray(AT_ONCE)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def crc(path: Path) -> None:
    """As caches were compared before."""
    total, buffer = 0, bytearray(AT_ONCE)
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total = zlib.crc32(memoryview(buffer)[:count], total)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    print(host_line())
    ways = {"read": read, "crc": crc, "sums": checksum_of}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        path, noise = Path(folder) / "0.data", np.random.default_rng(0)
        with path.open("wb") as file:
            for _ in range(int(options.gib * (1 << 30)) // _BLOCK):
                file.write(noise.bytes(_BLOCK))
        for turn in range(options.rounds + 1):
            for name in ways if turn % 2 else reversed(ways):
                began = time.process_time(), time.perf_counter()
                ways[name](path)
                if turn:  # the first round brings the file into memory
                    taken[name].append((time.process_time() - began[0], time.perf_counter() - began[1]))
    for name, each in taken.items():
        ratios = [
            trimmed([one[clock] / two[clock] for one, two in zip(each, taken["read"], strict=True)])
            for clock in (0, 1)
        ]
        cpu, wall = (statistics.median(pair[clock] for pair in each) for clock in (0, 1))
        told = ", ".join(f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f})" for ratio in ratios)
        print(f"{name:5} {cpu:.3f} s of the processor, {wall:.3f} s; over read {told}")


if __name__ == "__main__":
    main()
