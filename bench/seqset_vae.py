"""The recipe seqset_vae: from the naive way to the fast one, what is trained meanwhile, and what guides promise.

usage: python bench/seqset_vae.py DATA speed      hotlap compare: the naive way and `--preset max`
       python bench/seqset_vae.py DATA guard      do they train the same model? naive, dynamic padding, preset max
       python bench/seqset_vae.py DATA ways       each step from one to the other, and monitors, on their own
       python bench/seqset_vae.py DATA guides     each advice of a guide on its own, on the naive way
       python bench/seqset_vae.py DATA compiled   the same for compilation
       python bench/seqset_vae.py DATA tune       hotlap tune on the naive way with dynamic padding
DATA is made where it is missing (160 subjects to train on, 135 MB). All with `--size small`, on the CPU.
CPU time is that of the training process, without its workers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch

import interleave
from hotlap.data import BucketBatchSampler, padding_waste
from hotlap.facts.plan import Plan
from hotlap.facts.verdict import Guarded, Witness
from hotlap.judge.guard import LEAST_SEEDS, close
from hotlap.launch.command import to_job
from hotlap.launch.process import Signals
from hotlap.measure.runner import Bench
from hotlap.pipeline import collect
from hotlap.plan.catalogue import all_knobs
from hotlap_recipes.seqset_vae.make_data import write_subjects
from hotlap_recipes.seqset_vae.subjects import read_table
from interleave import BENCH, PYTHON, Variant, against, host_line

interleave.PATIENCE_S = 300  # a compiler takes long
TRAIN = "hotlap_recipes.seqset_vae.train"
SUBJECTS = (160, 40, 40)
BATCH, LONGEST = 4, 1000
GUARD_STEPS = 24
BATCHES, MONITORED = 6, 20  # that are timed; the naive monitor looks every 20
ROUNDS = 3
ENOUGH_S = 420  # after which no further run begins
NAIVE = ("--naive",)
DYNAMIC = ("--naive", "--use_dynamic_padding")
FAST = ("--preset", "max")

WAYS = {
    "naive": NAIVE,
    "dynamic padding": DYNAMIC,
    "and buckets": (*DYNAMIC, "--bucket_by_length"),
    "and packed files": (*DYNAMIC, "--bucket_by_length", "--packed"),
    "hotlap.watch at 0.2 %": (*NAIVE, "--fast_detection"),
    "no monitor": (*NAIVE, "--disable_metrics_monitoring"),
}
GUIDES: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "naive": (None, ()),
    "batch size 8": ("batch-size", ("--batch_size", "8")),
    "2 workers": ("num-workers", ("--num_workers", "2")),
    "8 workers": ("num-workers", ("--num_workers", "8")),
    "bf16-mixed": ("precision", ("--precision", "bf16-mixed")),
    "accumulation 2": ("accumulate", ("--gradient_accumulation_steps", "2")),
    "at most 500 sets": ("max-length", ("--max_sequence_length", "500")),
    "no monitor": ("monitor-budget", ("--disable_metrics_monitoring",)),
}
COMPILE: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "naive": (None, ()),
    "compile": ("compile", ("--compile_model",)),
}


def words(data: Path, options: Sequence[str]) -> list[str]:
    return ["--data_dir", str(data), "--size", "small", *options]


def rates(data: Path, ways: dict[str, tuple[str, ...]], batches: int) -> dict[str, list[dict[str, float]]]:
    """Figures of each way, in turn, in fresh processes, as long as there is time."""
    job, began = str(BENCH / "seqset_job.py"), time.monotonic()
    variants = [Variant(name, [PYTHON, job, str(batches), *words(data, way)]) for name, way in ways.items()]
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(ROUNDS):
            for variant in variants if turn % 2 == 0 else reversed(variants):
                started = time.monotonic()
                if started - began < ENOUGH_S:
                    figures[variant.name] += interleave.interleave([variant], 1, Path(folder))[variant.name]
                    print(f"{variant.name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
    return figures


def shown(figures: dict[str, list[dict[str, float]]], beside: dict[str, str], head: str) -> None:
    first = next(iter(figures))
    print(f"{'':22} sequences/s   ratio (95 %)              sequences/CPU-s   {head}")
    for name, runs in figures.items():
        if not runs:
            print(f"{name:22} not measured")
            continue
        found = against(figures, first, name, "second") if name != first else None
        ratio = f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})" if found else "1"
        wall, cpu = (median(run[per] for run in runs) for per in ("second", "CPU-second"))
        print(f"{name:22} {wall:11.2f}   {ratio:23}   {cpu:15.2f}   {beside.get(name, '')}", flush=True)


def speed(data: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        _hotlap(data, "compare", "--budget", "4m", "--out", folder, *_commands(data, NAIVE, FAST))


def tune(data: Path) -> None:
    """And how far dynamic padding has come under the plan, beside the naive way as it is."""
    asked = ["--budget", "4m", "--keep-batch", "--allow", "rounding,statistical"]
    with tempfile.TemporaryDirectory() as folder:
        _hotlap(data, "tune", *asked, "--out", folder, "-m", TRAIN, *words(data, DYNAMIC))
        compared(data, f"{folder}/plan.yaml")


def compared(data: Path, plan: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both = _commands(data, NAIVE, DYNAMIC)
        _hotlap(data, "compare", "--budget", "6", "--out", folder, "none", plan, *both)


def _commands(data: Path, *ways: Sequence[str]) -> list[str]:
    return [word for way in ways for word in ("--", "-m", TRAIN, *words(data, way))]


def _hotlap(data: Path, *asked: str) -> None:
    subprocess.run([PYTHON, "-m", "hotlap", *asked], cwd=data.parent, check=True)


def guard(data: Path) -> None:
    """hotlap's own guard: first steps of both, for several seeds."""
    with tempfile.TemporaryDirectory() as folder, Signals() as signals:

        def seen(way: Sequence[str]) -> list[Witness]:
            job = to_job(["-m", TRAIN, *words(data, way)], None, "guard")
            bench = Bench(job, Path(folder), collect, signals, GUARD_STEPS)
            runs = (
                bench.witness(f"seed-{seed}", Plan(), GUARD_STEPS, seed)[0] for seed in range(LEAST_SEEDS)
            )
            return [run for run in runs if run is not None]

        naive = seen(NAIVE)
        _judged("dynamic padding", close(naive, seen(DYNAMIC), "rounding"))
        _judged("--preset max", close(naive, seen(FAST), "statistical"))


def _judged(name: str, found: Guarded) -> None:
    print(f"{name:16} {found.sameness.value}: {found.reason}", flush=True)


def ways(data: Path) -> None:
    lengths = read_table(data, "train")["sets"].to_list()
    order = torch.randperm(len(lengths), generator=torch.Generator().manual_seed(0)).split(BATCH)
    fixed = padding_waste(lengths, [[index] for index in range(len(lengths))], LONGEST)
    dynamic = padding_waste(lengths, [each.tolist() for each in order])
    buckets = padding_waste(lengths, BucketBatchSampler(lengths, BATCH).batches(0))
    shares = (fixed, dynamic, buckets, buckets, fixed, fixed)
    beside = {name: f"{share:.1%}" for name, share in zip(WAYS, shares, strict=True)}
    shown(rates(data, WAYS, MONITORED), beside, "padding")


def guides(data: Path) -> None:
    _guided(data, GUIDES)


def compiled(data: Path) -> None:
    _guided(data, COMPILE)


def _guided(data: Path, advice: dict[str, tuple[str | None, tuple[str, ...]]]) -> None:
    knobs, promised = all_knobs(), {}
    for name, (knob, _) in advice.items():
        promise = knobs[knob].promise if knob else None
        promised[name] = f"{promise[0]:+.0%} to {promise[1]:+.0%}" if promise else ""
    found = rates(data, {name: (*NAIVE, *more) for name, (_, more) in advice.items()}, BATCHES)
    shown(found, promised, "guides promise")


PARTS = {part.__name__: part for part in (speed, guard, ways, guides, compiled, tune)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("part", choices=list(PARTS))
    options = parser.parse_args()
    data = options.data.resolve()
    if not (data / "subjects.parquet").exists():
        write_subjects(data, SUBJECTS)
    print(host_line(), flush=True)
    PARTS[options.part](data)


if __name__ == "__main__":
    main()
