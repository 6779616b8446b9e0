"""printer_tcn on its tiny size, naive to tuned: samples a second, what the guard says, and what limits the gain.

usage: python bench/printer_tcn.py [--budget 2m] [--allow rounding] [--layers N] [words for the training script ...]

The most that any data path could bring is a step of forward, backward and optimizer alone: printed beside the target.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from interleave import PYTHON, host_line

TARGET = 8.0
RECIPE = "hotlap_recipes.printer_tcn"


def tuned(folder: Path, asked: list[str], layers: int, words: list[str]) -> dict[str, Any]:
    """The view of a search on fresh data."""
    made = [PYTHON, "-m", f"{RECIPE}.make_data", "--out", ".", "--layers", str(layers)]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    train = ["-m", f"{RECIPE}.train", "--data_dir", "data_simulation_*", "--size", "tiny", *words]
    command = [PYTHON, "-m", "hotlap", "tune", *asked, "--json", "view.json", *train]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    view: dict[str, Any] = json.loads((folder / "view.json").read_text(encoding="utf-8"))
    return view


def told(view: dict[str, Any]) -> list[str]:
    """Naive, tuned, guard, target, and the limit."""
    rates, gain, stages = view["throughput"], view["gain"], view["stages"]["before"]
    step = sum(stages.values())
    most = step / sum(stages.get(stage, 0.0) for stage in ("forward", "backward", "optimizer"))
    lines = [
        view["command"],
        f"naive {rates['before']:,.0f} samples/s, a step of {step:.0f} ms waits {stages['data']:.0f} ms for data",
    ]
    if gain is None:
        return [*lines, f"tuned: {view['ended']}", f"target {TARGET:.0f} times: MISSED"]
    settings = ", ".join(f"{key}={value}" for key, value in view["plan"]["settings"].items())
    times, interval = 1.0 + gain["value"], gain["interval"]
    guard = view["guard"]["sameness"] if view["guard"] else "not asked"
    reached = "reached" if times >= TARGET and guard == "same" else "MISSED"
    return [
        *lines,
        f"tuned {rates['after']:,.0f} samples/s with {settings}",
        f"{times:.2f} times ({1 + interval['low']:.2f} to {1 + interval['high']:.2f}), the guard says {guard}",
        f"target {TARGET:.0f} times: {reached}; computing alone would be {most:.1f} times",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--budget", default="2m")
    parser.add_argument("--allow", default="")
    parser.add_argument("--layers", type=int, default=6, help="prints of each part, as make_data has them")
    options, words = parser.parse_known_args()
    print(host_line(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        asked = ["--budget", options.budget, *(["--allow", options.allow] if options.allow else [])]
        view = tuned(Path(folder), asked, options.layers, words)
    print("\n".join(told(view)))


if __name__ == "__main__":
    main()
