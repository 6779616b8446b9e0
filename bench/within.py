"""What watching costs, within one process: blocks of steps with the probe attached and without take turns.

usage: python bench/within.py [--plan] [--blocks 16] [--steps 200]
With --plan it is not the probe but an empty plan that comes and goes, as `hotlap run` fits it.
Start-up, memory layout and the mood of the machine are the same for both, so that a few microseconds can be told apart.
A second pair of blocks, both without the probe, is the A/A control. The parent process that reads the probe's
files is not part of it; it runs on another core.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from torch import nn

from hotlap.facts.plan import Plan
from hotlap.launch.fitting import fit
from hotlap.launch.planned import pass_plan
from hotlap.probe.attach import attach
from hotlap.stats.compare import ratio
from interleave import host_line
from loop import build

TARGET_US, TARGET_SHARE = 50.0, 0.01
WARM_UP = (
    20  # steps of a block: the probe finds the model, the processor its caches; a profile leaves them out too
)


class Loop:
    """The 5 ms loop, stopped and continued at will."""

    def __init__(self) -> None:
        self._model, self._optimizer, self._loader = build()
        self._criterion = nn.CrossEntropyLoss()

    def steps(self) -> Iterator[None]:
        while True:
            for inputs, targets in self._loader:
                self._optimizer.zero_grad()
                self._criterion(self._model(inputs), targets).backward()
                self._optimizer.step()
                yield


@contextmanager
def planned(on: bool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        fitter = fit(pass_plan(Path(folder), Plan()), Path(folder)) if on else None
        try:
            yield
        finally:
            if fitter is not None:
                fitter.undo()
                fitter.retire()


@contextmanager
def watched(on: bool) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as folder:
        session: Any = attach(Path(folder), time.perf_counter_ns(), []) if on else None
        try:
            yield
        finally:
            if session is not None:
                session.detach()


def block(loop: Loop, steps: int, beside: AbstractContextManager[None]) -> tuple[float, float]:
    """Microseconds of CPU and of wall time a step; the loader is iterated anew, so that the probe sees it begin."""
    with beside:
        going = loop.steps()
        for _ in range(WARM_UP):
            next(going)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            next(going)
        return (time.process_time() - cpu) / steps * 1e6, (time.perf_counter() - wall) / steps * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--plan", action="store_true")
    options = parser.parse_args()
    print(host_line())
    loop = Loop()
    seen: dict[str, list[tuple[float, float]]] = {"without": [], "with hotlap": [], "without again (A/A)": []}
    for turn in range(options.blocks):
        for name in seen if turn % 2 == 0 else reversed(seen):
            beside = (planned if options.plan else watched)(name == "with hotlap")
            seen[name].append(block(loop, options.steps, beside))
    base = statistics.median(wall for _, wall in seen["without"])
    print(f"{options.blocks} blocks of {options.steps} steps each way, median step {base / 1e3:.2f} ms\n")
    for name in list(seen)[1:]:
        for index, clock in enumerate(("CPU", "wall")):
            one, two = ([each[index] for each in seen[key]] for key in ("without", name))
            extra = statistics.median(b - a for a, b in zip(one, two, strict=True))
            found = ratio(one, two)
            print(
                f"{name:22} {clock:5} {extra:+8.1f} us a step, "
                f"ratio {found.value:.4f} ({found.low:.4f} to {found.high:.4f})"
            )
    extra = _extra(seen)
    verdict = "reached" if extra <= min(TARGET_US, TARGET_SHARE * base) else "MISSED"
    print(
        f"\ntarget: at most {TARGET_US:.0f} us and 1 % of the step; hotlap costs {extra:+.1f} us of CPU: {verdict}"
    )


def _extra(seen: dict[str, list[tuple[float, float]]]) -> float:
    pairs = zip(seen["without"], seen["with hotlap"], strict=True)
    return statistics.median(watched[0] - alone[0] for alone, watched in pairs)


if __name__ == "__main__":
    main()
