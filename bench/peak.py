"""The CPU's matmul peak that `hotlap profile` measures for MFU, beside the best of three sizes of the BLAS itself.

In turn, in fresh processes, with the peak measured twice as a control.

usage: python bench/peak.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch

from hotlap.probe.epilogue import peak_flops
from interleave import PYTHON, Variant, host_line, interleave

SIZES = (1000, 2000, 4000)
REPEATS = 5
WITHIN = 0.10


def best_of_sizes() -> float:
    """FLOP/s of the quickest product of random matrices, as a script makes it."""
    return max(_flops(size) for size in SIZES)


def _flops(size: int) -> float:
    left, right = torch.rand(size, size), torch.rand(size, size)
    times = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - begun)
    return 2.0 * size**3 / min(times)


def measure(what: str) -> None:
    begun = time.perf_counter()
    flops = best_of_sizes() if what == "sizes" else peak_flops("float32")
    figures = {"flops": flops, "seconds": time.perf_counter() - begun}
    Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--measure", choices=("peak", "again", "sizes"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    print(host_line())
    variants = [
        Variant(name, [PYTHON, str(Path(__file__).resolve()), "--measure", name])
        for name in ("peak", "again", "sizes")
    ]
    with tempfile.TemporaryDirectory() as folder:
        seen = interleave(variants, options.rounds, Path(folder))
    flops = {name: [each["flops"] for each in runs] for name, runs in seen.items()}
    for name, values in flops.items():
        took = statistics.median(each["seconds"] for each in seen[name])
        best, middle = max(values) / 1e9, statistics.median(values) / 1e9
        print(f"{name:8} {best:7.1f} GFLOP/s at best, {middle:7.1f} median, {took:.2f} s")
    for name in ("again", "sizes"):
        off = statistics.median(flops["peak"]) / statistics.median(flops[name]) - 1
        verdict = "reached" if abs(off) <= WITHIN else "MISSED"
        print(f"peak beside {name}: {off:+.1%}, within {WITHIN:.0%}: {verdict}")


if __name__ == "__main__":
    main()
