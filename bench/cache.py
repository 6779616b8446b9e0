"""printer_tcn as its script is, and with the plan's cache-dataset and batched-fetch: cost of an item, rate of batches.

Each variant runs in a process of its own, in turn. `naive` fetches a part of an epoch, since that is slow; `cached`
and `gathered` take the cache from a file that is built once, before; `bound` is the quickest that one process can
gather the same windows: torch's index_select on a view of the recordings, with one thread and nothing around it.

usage: python bench/cache.py [--rounds 6] [--layers 1]
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Subset

from hotlap.knobs.batched_fetch import BatchedFetch
from hotlap.knobs.cache_dataset import CacheDataset
from hotlap.ports.target import Loader
from hotlap.units import duration, rate
from hotlap_recipes.printer_tcn import STRIDE, WINDOW, make_data
from hotlap_recipes.printer_tcn.dataset import PrintWindows, fit_scalers, load_prints
from interleave import PYTHON, Variant, against, host_line, interleave

VARIANTS = ("naive", "cached", "gathered", "bound")
BATCH = 512
NAIVE_ITEMS = 4 * BATCH
LEAST_S = 0.7  # of measuring in one run: whole epochs until then
ITEM_TARGET, BOUND_TARGET = 50.0, 0.7


def windows(folder: Path) -> PrintWindows:
    prints = load_prints([str(folder / "data_simulation_*")])
    return PrintWindows(prints, fit_scalers(prints))


def planned(dataset: PrintWindows, batched: bool) -> DataLoader[Any]:
    """The loader that the script builds, with the plan's settings applied to its arguments."""
    bound = inspect.signature(DataLoader.__init__).bind(None, dataset, batch_size=BATCH, shuffle=True)
    bound.apply_defaults()
    target = Loader({name: value for name, value in bound.arguments.items() if name != "self"})
    CacheDataset().apply(target, "file")
    if batched:
        BatchedFetch().apply(target, True)
    return DataLoader(**target.arguments)


def bound_epochs(dataset: PrintWindows) -> Callable[[], Iterator[Sequence[torch.Tensor]]]:
    """Gathers of random windows, straight from the normalised recordings."""
    normal = PrintWindows.__new__(PrintWindows)
    normal.__dict__.update(vars(dataset))
    tables = [normal.normalize(tables) for tables in dataset.tables]
    whole = [
        torch.cat([torch.tensor(each[part], dtype=torch.float32) for each in tables]) for part in range(3)
    ]
    views = [
        each.as_strided((len(each) - WINDOW + 1, WINDOW, each.shape[1]), (each.shape[1], *each.stride()))
        for each in whole
    ]
    ends = torch.tensor([0, *(len(each[0]) for each in dataset.tables)]).cumsum(0)
    starts = torch.tensor([int(ends[number]) + start for number, start in dataset.index])
    assert int(starts[1] - starts[0]) == STRIDE
    for view, expected in zip(views, dataset[7], strict=True):
        assert torch.equal(view[starts[7]], expected)

    def epoch() -> Iterator[Sequence[torch.Tensor]]:
        torch.set_num_threads(1)
        for rows in torch.randperm(len(starts)).split(BATCH):
            places = starts[rows]
            yield [view.index_select(0, places) for view in views]

    return epoch


def measure(variant: str, folder: Path) -> dict[str, float]:
    """Seconds of an item, and items a second, over whole epochs; the first is not counted."""
    dataset = windows(folder)
    epochs: Callable[[], Any]
    if variant == "naive":
        part = Subset(dataset, range(NAIVE_ITEMS))
        epochs = DataLoader(part, batch_size=BATCH, shuffle=True).__iter__
    elif variant == "bound":
        epochs = bound_epochs(dataset)
    else:
        epochs = planned(dataset, variant == "gathered").__iter__
    if variant != "naive":
        sum(len(batch[0]) for batch in epochs())
    items, began = 0, time.perf_counter()
    while time.perf_counter() - began < LEAST_S:
        items += sum(len(batch[0]) for batch in epochs())
    seconds = time.perf_counter() - began
    return {"item_s": seconds / items, "items_per_s": items / seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--layers", type=int, default=1, help="prints of each of four parts")
    parser.add_argument("--measure", choices=VARIANTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        figures = measure(options.measure, Path.cwd())
        Path(os.environ["BENCH_FIGURES"]).write_text(json.dumps(figures))
        return
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with contextlib.redirect_stdout(None):  # it names its folder
            make_data.main(["--out", folder, "--layers", str(options.layers)])
        began = time.perf_counter()
        loader = planned(windows(Path(folder)), False)
        print(
            f"built once, {len(loader.dataset):,} items in {duration(time.perf_counter() - began)}",
            flush=True,
        )  # type: ignore[arg-type]
        variants = [Variant(each, [PYTHON, __file__, "--measure", each]) for each in VARIANTS]
        report(interleave(variants, options.rounds, Path(folder)))
        os.chdir("/")


def report(figures: dict[str, list[dict[str, float]]]) -> None:
    for variant, runs in figures.items():
        seconds = sorted(run["item_s"] for run in runs)
        if seconds:
            middle = seconds[len(seconds) // 2]
            print(
                f"{variant:10} {duration(middle):>8} an item, {rate(1 / middle):>10} items/s in the median run"
            )
    compared = (
        ("naive", "cached", "cache-dataset alone", ITEM_TARGET),
        ("naive", "gathered", "with batched-fetch", ITEM_TARGET),
        ("bound", "gathered", "of the gather bound", BOUND_TARGET),
    )
    for base, other, what, target in compared:
        found = against(figures, base, other, "items_per_s")
        if found is None:
            print(f"{what}: not measured")
            continue
        reached = (
            "reached" if found.low >= target else "within the interval" if found.high >= target else "MISSED"
        )
        interval = f"{found.low:.3g} to {found.high:.3g}"
        print(f"{other} over {base}, {what}: {found.value:.3g} ({interval}), target {target:g}: {reached}")


if __name__ == "__main__":
    sys.exit(main())
