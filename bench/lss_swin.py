"""lss_swin: from the naive pipeline to the fast one in samples/s, the four configurations, learning, scaled decode.

usage: python bench/lss_swin.py parts|speed|full|configs|learn|decode [--root DIR] [--rounds 3] [--iters 20]
`parts` is the CPU time of each part, naive and fast, tiny and base. `speed` changes one part after the other at the
tiny size, `full` sets naive beside fast at the base size, `configs` is a table by `hotlap compare`.
`learn` and `decode` train: IoU of validation beside one constant map and beside swapped images, and the seeds' spread
beside what scaled decoding changes; what was interrupted goes on where it was.
`--root` is a tree of make_nuscenes; without one it is rendered first, 400 key frames.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hotlap_recipes.lss_swin import SIX
from hotlap_recipes.lss_swin.grid import BevGrid
from hotlap_recipes.lss_swin.make_nuscenes import main as make_nuscenes
from hotlap_recipes.lss_swin.pack import pack_split
from hotlap_recipes.lss_swin.sources import Wanted
from interleave import PYTHON, host_line
from lss_swin_learn import decode, learn
from lss_swin_parts import parts as cpu_parts

TRAIN = ("-m", "hotlap_recipes.lss_swin.train")
NAIVE = "configs/lss_swin_nuscenes_naive.py"
SPOKEN = re.compile(r"trained \d+ samples in [\d.]+ s, ([\d.]+) samples/s")
# Once in 2000 iterations, as the other configurations evaluate, is nothing; a short run would evaluate at its end.
RARELY = "--no-validate"
BAGS, SCALED = "model.splat=embedding_bag", "data.decode=scaled"
TABLE = ("nuscenes", "nuscenes_optimized", "nuscenes_speed_first", "nuscenes_high_memory")


def pack_all(root: Path, out: Path) -> Path:
    for split in ("train", "val"):
        if not (out / split).is_dir():
            pack_split(str(root), out, Wanted(split, SIX, (128, 352), BevGrid(), "scaled"))
    return out


def rate(words: Sequence[str], folder: Path) -> float:
    """Samples a second by the script's own stopwatch, evaluation included, start-up not."""
    flags, options = ([word for word in words if word.startswith("-") is flag] for flag in (True, False))
    command = [PYTHON, *TRAIN, NAIVE, *flags, "--work-dir", str(folder / "work"), "--options", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    found = SPOKEN.search(ended.stdout + ended.stderr)
    if ended.returncode or not found:
        sys.exit(f"{' '.join(command)} failed: {ended.stderr[-2000:]}")
    return float(found[1])


def in_turn(variants: dict[str, list[str]], always: Sequence[str], rounds: int) -> dict[str, float]:
    """Medians of runs that take turns, forwards and backwards."""
    seen: dict[str, list[float]] = {name: [] for name in variants}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds):
            for name in variants if turn % 2 == 0 else [*reversed(variants)]:
                seen[name].append(rate([*always, *variants[name]], Path(folder)))
                print(f"run {turn + 1}, {name}: {seen[name][-1]:.2f} samples/s", file=sys.stderr, flush=True)
    return {name: statistics.median(rates) for name, rates in seen.items()}


def speed(options: argparse.Namespace) -> None:
    """Part after part. A part's share is the time that it took of the naive run, as the next line no longer has it."""
    packed = pack_all(options.root, options.root.parent / "packed")
    always = ["model.size=tiny", f"data.root={options.root}", f"runner.max_iters={options.iters}"]
    steps = {
        "evaluation": [RARELY],
        "splat": [RARELY, BAGS],
        "decode": [RARELY, BAGS, SCALED],
        "rest of the items": [RARELY, BAGS, SCALED, f"data.packed={packed}"],
    }
    changes = ("validates rarely", "embedding_bag", "scaled decode", "packed")
    rates = in_turn({"naive": [], **steps}, always, options.rounds)
    naive = rates["naive"]
    print(f"tiny, batch 4, 128 x 352 images, {options.iters} iterations, median of {options.rounds}")
    print(f"{'pipeline':24} {'samples/s':>10} {'gain':>7}   part that went, of the naive run's time")
    print(f"{'naive':24} {naive:10.2f} {1.0:6.2f}x")
    before = naive
    for (part, _), change in zip(steps.items(), changes, strict=True):
        share = naive / before - naive / rates[part]
        print(f"{'+ ' + change:24} {rates[part]:10.2f} {rates[part] / naive:6.2f}x   {part} {share:.0%}")
        before = rates[part]
    print(
        f"naive to fast: {before / naive:.2f}x, target 3x: {'reached' if before >= 3 * naive else 'MISSED'}"
    )


def parts(options: argparse.Namespace) -> None:
    cpu_parts(options, pack_all(options.root, options.root.parent / "packed"))


def full(options: argparse.Namespace) -> None:
    packed = pack_all(options.root, options.root.parent / "packed")
    fast = [RARELY, BAGS, SCALED, f"data.packed={packed}"]
    # Validation of 80 frames would take minutes at this size: it is left out of both.
    always = [f"data.root={options.root}", f"runner.max_iters={min(options.iters, 4)}"]
    rates = in_turn({"naive": [RARELY], "fast": fast}, always, max(1, options.rounds - 1))
    print(f"base (Swin-T), batch 4, without evaluation: naive {rates['naive']:.3f} samples/s, ", end="")
    print(f"fast {rates['fast']:.3f} samples/s, {rates['fast'] / rates['naive']:.2f}x")


def configs(options: argparse.Namespace) -> None:
    packed = pack_all(options.root, options.root.parent / "packed")
    words = [
        "model.size=tiny",
        f"data.root={options.root}",
        f"data.packed={packed}",
        "runner.max_iters=100000",
    ]
    command = [PYTHON, "-m", "hotlap", "compare", "--budget", "4m"]
    for name in TABLE:
        config = f"configs/lss_swin_{name}.py"
        command += ["--", *TRAIN, config, "--no-validate", "--work-dir", f"work/{name}", "--options", *words]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(command, cwd=folder, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = (parts, speed, full, configs, learn, decode)
    known = {kind.__name__: kind for kind in kinds}
    parser.add_argument("part", choices=known)
    parser.add_argument("--root", type=Path, default=Path("bench_data/nuscenes"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iters", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3, help="of `decode`")
    parser.add_argument("--steps", type=int, help="of `learn` and `decode`")
    options = parser.parse_args()
    print(host_line(), flush=True)
    if not options.root.is_dir():
        make_nuscenes(["--out", str(options.root)])
    options.root = options.root.resolve()
    known[options.part](options)


if __name__ == "__main__":
    main()
