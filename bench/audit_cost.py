"""What fingerprint and audit of `cache-dataset` cost, and how late the audit finds what only it can see.

Cost: one process trains on a cached dataset in slices that take turns: checks on, checks off, and off once more as the
control. Delay: items depend on something that cannot be walked; it changes at a random step, and steps are counted
until the cache has ended.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import io
import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.cache.materialise import materialise
from hotlap.data.cache.served import Kept, kept_of
from hotlap.sameness.audit import own_time
from hotlap.stats.compare import Ratio, trimmed
from interleave import host_line

ITEMS, BATCH, WIDTH = 4096, 64, 256
PROMISED, PROMISED_STEPS = 0.01, 200
SLICE_STEPS = 40


class Rows(Dataset[Any]):
    """Items that take some Python, and an address that only C knows of."""

    def __init__(self, item_loops: int) -> None:
        self.table = torch.randn(ITEMS, WIDTH)
        self.loops = item_loops
        self.hidden = ctypes.addressof(_HIDDEN)

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        drift = 0.0
        for number in range(self.loops):
            drift += number * 1e-12
        return self.table[index] + drift + ctypes.c_double.from_address(self.hidden).value


_HIDDEN = ctypes.c_double(0.0)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


def trainer(width: int) -> Any:
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)

    def step(batch: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(batch).pow(2).mean().backward()
        optimizer.step()

    return step


def quietly(dataset: Any) -> Any:
    with contextlib.redirect_stderr(io.StringIO()):
        return materialise(dataset)


def cost(width: int, loops: int, rounds: int) -> None:
    """By the processor's time of the training thread, which neighbours hardly change; and by the clock."""
    checks, step = Kept.current, trainer(width)
    served = quietly(Rows(loops))
    batches = endless(DataLoader(served, BATCH, shuffle=True))
    idle = _stand_still_while_off(served)
    variants = {"on": checks, "off": lambda *_: True, "control": lambda *_: True}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for turn in range(rounds + 2):
        for name in sorted(variants, reverse=bool(turn % 2)):
            Kept.current = variants[name]  # type: ignore[method-assign]
            began = time.thread_time(), time.perf_counter(), own_time()
            for _ in range(SLICE_STEPS):
                step(next(batches))
            if name != "on":
                idle.own += own_time() - began[2]
                idle.clock += time.perf_counter() - began[1]
            if turn >= 2:
                seconds[name].append((time.thread_time() - began[0], time.perf_counter() - began[1]))
    Kept.current = checks  # type: ignore[method-assign]
    step_ms = 1e3 / SLICE_STEPS * statistics.median(cpu for cpu, _ in seconds["off"])
    print(
        f"step {step_ms:6.2f} ms of the processor, item loops {loops:5}, {rounds} rounds of {SLICE_STEPS} steps"
    )
    for clock, named in enumerate(("processor", "clock")):
        found = {name: _over_off(seconds, name, clock) for name in ("on", "control")}
        told = {name: f"{each.value:.4f} ({each.low:.4f} to {each.high:.4f})" for name, each in found.items()}
        word = "reached" if found["on"].value <= 1 + PROMISED else "MISSED"
        print(f"  {named:9} on/off {told['on']}, A/A {told['control']}: {word}")


@dataclass
class Idle:
    """Seconds of slices without checks."""

    own: float = 0.0
    clock: float = 0.0


def _stand_still_while_off(served: Any) -> Idle:
    """The clocks of the checks do not count slices without them: else each slice would begin with all that was due
    meanwhile. As in a run, a look at the clock says that nothing is due; the thread's own time takes a system call."""
    kept, idle = kept_of(served), Idle()
    assert kept is not None
    for pace in (kept.watch._pace, kept.audit._pace):
        pace._own = lambda: own_time() - idle.own
        pace._clock = lambda: time.perf_counter() - idle.clock
    return idle


def _over_off(seconds: Mapping[str, Sequence[tuple[float, float]]], name: str, clock: int) -> Ratio:
    pairs = zip(seconds[name], seconds["off"], strict=True)
    return trimmed([one[clock] / two[clock] for one, two in pairs])


def delays(width: int, loops: int, count: int) -> None:
    chance, step, found = random.Random(0), trainer(width), []
    for _ in range(count):
        _HIDDEN.value = 0.0
        served = quietly(Rows(loops))
        batches, change = endless(DataLoader(served, BATCH, shuffle=True)), chance.randrange(50, 200)
        with contextlib.redirect_stderr(io.StringIO()):
            for number in range(20_000):
                if number == change:
                    _HIDDEN.value = 1.0
                step(next(batches))
                if kept_of(served).dropped:  # type: ignore[union-attr]
                    found.append(number - change)
                    break
    median = statistics.median(found) if found else float("inf")
    word = "reached" if median <= PROMISED_STEPS and len(found) == count else "MISSED"
    print(
        f"item loops {loops:5}: {len(found)} of {count} found, {median:g} steps late, worst {max(found)}: {word}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--count", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(host_line())
    print("Cost of fingerprint and audit")
    for width, loops in ((64, 100), (512, 100), (512, 5000), (2048, 100)):
        cost(width, loops, options.rounds)
    print("Steps until the audit has found a change that only it can see")
    for width, loops in ((512, 100), (512, 5000)):
        delays(width, loops, options.count)


if __name__ == "__main__":
    main()
