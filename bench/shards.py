"""Reading packed data beside the peers: speech, photographs, windows, sequences; the same output, in turn.

usage: python bench/shards.py [--rounds 3] [--keep FOLDER]

Peers that are not installed are left out (pip install 'hotlap[bench]'). Every reader runs in a fresh process, in its
best setting, with the same decoder; what it yields is compared with what hotlap yields. Rates are clips, photographs,
windows and tokens a second; a ratio is hotlap over the peer, with its 95 % interval.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from pathlib import Path

from interleave import BENCH, PYTHON, Variant, against, host_line, interleave
from shard_data import make

PEERS = ("torch", "webdataset", "spdl", "grain", "tensordict", "datasets", "lhotse", "litdata")
OF_BOUND = {"windows": 0.7, "sequences": 0.6}  # of a gather, of a copy, in memory
MOST_PADDING = 0.1
TARGETS = {"wav": 3.0, "flac": 1.5, "jpeg": 1.3, "windows": 3.0, "sequences": 1.0}
Figures = dict[str, list[dict[str, float]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="make the data here and leave it")
    options = parser.parse_args()
    here = [peer for peer in PEERS if importlib.util.find_spec(peer)]
    print(host_line())
    print("not installed:", ", ".join(peer for peer in PEERS if peer not in here) or "none")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        if not (folder / "sequences-packed").exists():
            folder.mkdir(parents=True, exist_ok=True)
            make(folder)
        script = str(BENCH / "shard_job.py")
        variants = [
            Variant(name, [PYTHON, script, name, str(folder.absolute())])
            for name in ("hotlap", "bound", *here)
        ]
        figures = interleave(variants, options.rounds, folder)
    for workload, target in TARGETS.items():
        show(workload, target, figures)


def show(workload: str, target: float, figures: Figures) -> None:
    runs = {name: [run for run in each if workload in run] for name, each in figures.items()}
    runs = {name: each for name, each in runs.items() if each}
    if "hotlap" not in runs:
        print(f"\n{workload}: not measured")
        return
    print(f"\n{workload:12} {'per second':>12} {'hotlap / peer':>14}   95 % interval")
    limit = runs.pop("bound", [])
    right = runs["hotlap"][0][f"{workload}-digest"]
    worst = None
    for name in sorted(runs, key=lambda each: -mean(runs[each], workload)):
        line = f"{name:12} {mean(runs[name], workload):12,.0f}"
        if any(run[f"{workload}-digest"] != right for run in runs[name]):
            line += "   OTHER OUTPUT, not compared"
        elif name != "hotlap" and (ratio := against(runs, name, "hotlap", workload)):
            line += f" {ratio.value:14.2f}   {ratio.low:.2f} to {ratio.high:.2f}"
            worst = min(ratio.value, worst or ratio.value)
        print(line)
    if worst is not None:
        print(f"target {target:g} x the best peer: {verdict(worst >= target)} ({worst:.2f})")
    if limit:
        show_limit(workload, {"bound": limit, "hotlap": runs["hotlap"]})


def show_limit(workload: str, runs: Figures) -> None:
    ratio, wanted = against(runs, "bound", "hotlap", workload), OF_BOUND[workload]
    if ratio is not None:
        of_memory = f"{ratio.value:.2f} ({ratio.low:.2f} to {ratio.high:.2f}) of what memory allows"
        told = "NOT DECIDED" if ratio.low < wanted <= ratio.value else verdict(ratio.value >= wanted)
        print(f"{of_memory}, {mean(runs['bound'], workload):,.0f}; target {wanted}: {told}")
    if (share := runs["hotlap"][0].get("padding")) is not None and workload == "sequences":
        print(f"padding {share:.1%}; target {MOST_PADDING:.0%}: {verdict(share < MOST_PADDING)}")


def verdict(reached: bool) -> str:
    return "reached" if reached else "MISSED"


def mean(runs: list[dict[str, float]], key: str) -> float:
    return sum(run[key] for run in runs) / len(runs)


if __name__ == "__main__":
    main()
