"""What lss_swin learns on its rendered tree: used by lss_swin.py.

Cells are 1 m wide here, so that a processor can learn in minutes; everything else is the recipe's own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
from pathlib import Path

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.config import load
from hotlap_recipes.lss_swin.evaluate import Scores, evaluated, table
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.pack import pack_split
from hotlap_recipes.lss_swin.sources import Decode, Wanted
from interleave import PYTHON

CONFIG = "configs/lss_swin_nuscenes.py"
GRID = BevGrid(x=(-50.0, 50.0, 1.0), y=(-50.0, 50.0, 1.0))
WORKERS = 0  # items are read from shards: no worker is quicker
LEARN_STEPS, DECODE_STEPS = 1600, 400


def options_of(packed: Path, steps: int, seed: int, read: Decode) -> dict[str, object]:
    return {
        "data.packed": str(packed),
        "data.decode": read,
        "data.workers_per_gpu": WORKERS,
        "model.size": "tiny",
        "grid.x": GRID.x,
        "grid.y": GRID.y,
        "optimizer.lr": 2e-3,
        "lr_config.warmup_iters": 50,
        "runner.max_iters": steps,
        "checkpoint_config.interval": 200,
        "seed": seed,
    }


def packed_as(root: Path, read: Decode) -> Path:
    out = root.parent / f"packed_1m_{read}"
    for split in ("train", "val"):
        if not (out / split).is_dir():
            pack_split(str(root), out, Wanted(split, SIX, (128, 352), GRID, read))
    return out


def train(packed: Path, work: Path, steps: int, seed: int, read: Decode) -> dict[str, Scores]:
    """Trains, going on from the latest checkpoint of `work`, and scores the last one."""
    options = options_of(packed, steps, seed, read)
    words = [f"{key}={_word(value)}" for key, value in options.items()]
    last = work / f"iter_{steps}.pth"
    if not last.is_file():
        command = [
            PYTHON,
            "-m",
            "hotlap_recipes.lss_swin.train",
            CONFIG,
            "--no-validate",
            "--work-dir",
            str(work),
        ]
        reached = sorted(work.glob("iter_*.pth"), key=lambda file: int(file.stem[5:]))
        command += ["--resume-from", str(reached[-1])] if reached else []
        subprocess.run([*command, "--options", *words], check=True, capture_output=True)
    return evaluated(load(CONFIG, options), str(last))


def _word(value: object) -> str:
    return f"({','.join(map(str, value))})" if isinstance(value, tuple) else str(value)


def learn(options: argparse.Namespace) -> None:
    steps = options.steps or LEARN_STEPS
    rows = train(packed_as(options.root, "scaled"), options.root.parent / "learn", steps, 0, "scaled")
    print(f"tiny, cells of 1 m, {steps} steps of batch 4, 320 key frames; validation on streets of its own")
    print(table(rows))
    constant, trained, swapped = rows.values()
    names = [name for name in trained if name != "mIoU"]
    above = all(trained[name] > constant[name] for name in names)
    falls = all(swapped[name] < trained[name] for name in names)
    print(f"above the constant map in both classes: {'yes' if above else 'NO'}")
    print(f"falls in both when images are swapped: {'yes' if falls else 'NO'}")


def decode(options: argparse.Namespace) -> None:
    steps = options.steps or DECODE_STEPS
    found: dict[str, list[float]] = {}
    for read in ("full", "scaled"):
        packed = packed_as(options.root, read)
        for seed in range(options.seeds):
            work = options.root.parent / f"decode_{read}_{seed}"
            scores = train(packed, work, steps, seed, read)["trained"]
            found.setdefault(read, []).append(scores["mIoU"])
            print(f"{read} decode, seed {seed}: mIoU {scores['mIoU']:.4f}", flush=True)
    means = {read: statistics.mean(scores) for read, scores in found.items()}
    spread = max(max(scores) - min(scores) for scores in found.values())
    change = abs(means["scaled"] - means["full"])
    verdict = "smaller" if change < spread else "NOT smaller"
    print(
        f"{steps} steps, {options.seeds} seeds: mIoU full {means['full']:.4f}, scaled {means['scaled']:.4f}: "
        f"a change of {change:.4f}, {verdict} than the seeds' spread of {spread:.4f}"
    )
