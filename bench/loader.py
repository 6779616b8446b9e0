"""How quick is hotlap's loader? Hand-over from workers, live tuning, and keeping a device busy.

usage: python bench/loader.py [--quick] [--rounds 3] [--only handover|tuning|busy]
Variants take turns, each run in a fresh process; ratios carry the interval of their runs.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from interleave import BENCH, PYTHON, Variant, against, host_line, interleave

Figures = Mapping[str, list[dict[str, float]]]

FIXED = {
    "computing": ("in-process-0-1", "processes-1-4", "processes-2-4", "processes-4-8"),
    "waiting": ("processes-8-16", "threads-8-16", "threads-16-24", "threads-32-36"),
    "uneven": ("processes-2-4", "processes-2-16", "threads-4-16", "processes-4-32"),
}
PEERS = ("torch-0", "torch-2")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one fixed setting and two rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("handover", "tuning", "busy"))
    options = parser.parse_args()
    rounds = 2 if options.quick else options.rounds
    print(host_line())
    parts = {"handover": handover, "tuning": tuning, "busy": busy}
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts.items():
            if options.only in (None, name):
                part(rounds, Path(folder), options.quick)


def _runs(case: str, variants: Sequence[str], rounds: int, folder: Path) -> Figures:
    script = str(BENCH / "loader_runs.py")
    return interleave([Variant(each, [PYTHON, script, case, each]) for each in variants], rounds, folder)


def _median(figures: Figures, variant: str, key: str) -> float | None:
    found = [run[key] for run in figures[variant]]
    return statistics.median(found) if found else None


def _ratio(figures: Figures, base: str, other: str, key: str) -> str:
    found = against(figures, base, other, key)
    return "not measured" if found is None else f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def handover(rounds: int, folder: Path, _: bool) -> None:
    print("\nhand-over of a batch from a worker process, us (target: at most 0.1 of torch's)")
    print("  ready:  the worker holds the batch ready, so all the time from one to the next is hand-over")
    print("  rows:   16 rows are collated: all the time from one to the next, with making the batch")
    print(
        "  beyond: the same without making; that is what fetching and stacking the rows into memory that it"
    )
    print("          has already takes the worker, timed by itself at every 8th batch of the same run")
    figures = _runs("handover", ("torch", "hotlap"), rounds, folder)
    for size in (1, 16):
        for part in ("ready", "rows", "beyond", "making"):
            key = f"{part}_{size}"
            torchs, ours = (_median(figures, each, key) for each in ("torch", "hotlap"))
            if torchs is not None and ours is not None:
                compared = "" if part == "making" else f"  ratio {_ratio(figures, 'torch', 'hotlap', key)}"
                print(f"{size:>4} MiB, {part:<7} torch {torchs:>8.0f}  hotlap {ours:>8.0f}{compared}")


def tuning(rounds: int, folder: Path, quick: bool) -> None:
    print("\nlive tuning after 200 batches, batches/s (target: 0.95 of the best fixed setting)")
    for kind, all_fixed in FIXED.items():
        fixed = all_fixed[-2:-1] if quick else all_fixed
        figures = _runs(f"tuning:{kind}", (*fixed, "auto"), rounds, folder)
        rates = {each: found for each in figures if (found := _median(figures, each, "rate")) is not None}
        best = max((each for each in rates if each != "auto"), key=rates.__getitem__, default=None)
        shown = ", ".join(f"{each} {found:.0f}" for each, found in rates.items())
        print(f"{kind:>10}  {shown}")
        if best is not None:
            print(f"{'':>10}  auto / {best}: {_ratio(figures, best, 'auto', 'rate')}")


def busy(rounds: int, folder: Path, quick: bool) -> None:
    print("\nshare of its time that a stand-in accelerator computes (target: 0.95)")
    for kind, step in (("windows", "2 ms"), ("sequences", "20 ms"), ("wav", "20 ms"), ("flac", "20 ms")):
        peers = () if quick else PEERS
        figures = _runs(f"busy:{kind}", (*peers, "hotlap"), rounds, folder)
        shown = ", ".join(
            f"{each} {found:.3f}" for each in figures if (found := _median(figures, each, "busy"))
        )
        print(f"{kind:>10} at {step}: {shown}")


if __name__ == "__main__":
    main()
