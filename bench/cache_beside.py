"""printer_tcn trained from its cache by this version beside another one: the processor's time of a step, in turn.

    git worktree add ../former 7f760d9 && python bench/cache_beside.py --former ../former/src [--rounds 30]

Both versions, and this one again as the control, are processes that train in slices, one at a time, each on the same
data with `cache-dataset=memory` and `batched-fetch`.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SLICE_STEPS = 12
BATCH = 256
WITHIN = 0.03


def serve(folder: Path) -> None:
    """Train a slice for each line that comes, and tell what a step of it took."""
    import torch
    from torch.utils.data import DataLoader

    from hotlap.knobs.batched_fetch import BatchedFetch
    from hotlap.knobs.cache_dataset import CacheDataset
    from hotlap.ports.target import Loader
    from hotlap_recipes.printer_tcn.dataset import PrintWindows, fit_scalers, load_prints
    from hotlap_recipes.printer_tcn.model import PrinterTCN

    torch.set_num_threads(1)
    prints = load_prints([str(folder / "data_simulation_*")])
    bound = inspect.signature(DataLoader.__init__).bind(
        None, PrintWindows(prints, fit_scalers(prints)), batch_size=BATCH, shuffle=True, drop_last=True
    )
    bound.apply_defaults()
    target = Loader({name: value for name, value in bound.arguments.items() if name != "self"})
    with contextlib.redirect_stderr(io.StringIO()):
        CacheDataset().apply(target, "memory")
        BatchedFetch().apply(target, True)
    loader = DataLoader(**target.arguments)
    model = PrinterTCN("tiny")
    optimizer = torch.optim.Adam(model.parameters())
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for _ in sys.stdin:
        began = time.thread_time(), time.perf_counter()
        for batch in itertools.islice(batches, SLICE_STEPS):
            optimizer.zero_grad()
            _total(model(batch[0])).backward()
            optimizer.step()
        print((time.thread_time() - began[0]) / SLICE_STEPS, (time.perf_counter() - began[1]) / SLICE_STEPS)
        sys.stdout.flush()


def _total(found: Any) -> Any:
    """A loss of any outputs: what it is does not matter here, that it is computed does."""
    parts = found if isinstance(found, tuple | list) else (found,)
    return sum(part.pow(2).mean() for part in parts)


class Trainer:
    """A version of hotlap in a process that waits for its turn."""

    def __init__(self, source: str, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": source}
        words = [sys.executable, __file__, "--serve", str(folder)]
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def slice(self) -> tuple[float, float]:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(file=self._process.stdin, flush=True)
        cpu, wall = self._process.stdout.readline().split()
        return float(cpu), float(wall)

    def end(self) -> None:
        self._process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--former", help="src of the other version's work tree")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    from hotlap.stats.compare import trimmed
    from hotlap_recipes.printer_tcn import make_data
    from interleave import host_line

    print(host_line(), flush=True)
    here = str(Path(__file__).parents[1] / "src")
    with tempfile.TemporaryDirectory() as name:
        with contextlib.redirect_stdout(None):
            make_data.main(["--out", name, "--layers", "1"])
        trainers = {
            each: Trainer(source, Path(name))
            for each, source in (("former", options.former), ("now", here), ("again", here))
        }
        taken: dict[str, list[tuple[float, float]]] = {each: [] for each in trainers}
        for turn in range(options.rounds + 2):
            for each in trainers if turn % 2 else reversed(trainers):
                found = trainers[each].slice()
                if turn >= 2:
                    taken[each].append(found)
        for trainer in trainers.values():
            trainer.end()
    for one, other in (("now", "former"), ("again", "now")):
        for clock, named in enumerate(("processor", "clock")):
            ratio = trimmed([a[clock] / b[clock] for a, b in zip(taken[one], taken[other], strict=True)])
            told = f"{ratio.value:.4f} ({ratio.low:.4f} to {ratio.high:.4f})"
            print(f"a step {one} over {other}, by the {named}: {told}")
    step_ms = 1e3 * statistics.median(cpu for cpu, _ in taken["now"])
    print(f"{step_ms:.2f} ms of the processor a step; target: at most {WITHIN:.0%} slower than the former")


if __name__ == "__main__":
    main()
