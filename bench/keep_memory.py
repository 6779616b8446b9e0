"""What it brings to keep freed memory in the process: a job with large activations, as it is and with `keep-memory`.

usage: python bench/keep_memory.py [--minutes 1.5]
For one thread of torch and for all cores: what the experiments of `hotlap profile` measure, and
what `hotlap compare` measures.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from interleave import BENCH, PYTHON, host_line

JOB = str(BENCH.parent / "tests" / "planted" / "memory_churn.py")
PLAN = "hotlap: 1\nsettings:\n  keep-memory: true\n"


def asked(folder: Path, threads: int, *words: str) -> dict[str, Any]:
    """The view that a command of hotlap writes."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    command = [PYTHON, "-m", "hotlap", words[0], "--json", "view.json", *words[1:]]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    view: dict[str, Any] = json.loads((folder / "view.json").read_text(encoding="utf-8"))
    return view


def tried(folder: Path, threads: int) -> str:
    view = asked(folder, threads, "profile", "--steps", "40", JOB)
    fixes = [fix for each in view["findings"] for fix in each["fixes"] if fix["knob"] == "keep-memory"]
    fixes = [fix for fix in fixes if fix["measured_gain"] is not None]
    if not fixes:
        return "not tried in the running job"
    low, high = (1 + fixes[0]["interval"][end] for end in ("low", "high"))
    return f"in the running job {1 + fixes[0]['measured_gain']:.2f} times ({low:.2f} to {high:.2f})"


def measured(folder: Path, threads: int, minutes: float) -> str:
    budget = f"{minutes * 60:.0f}s"
    view = asked(folder, threads, "compare", "--budget", budget, "none", "keep.yaml", "--", JOB)
    found = next(row["ratio"] for row in view["variants"] if row["name"] == "keep.yaml")
    return f"measured {found['value']:.2f} times ({found['low']:.2f} to {found['high']:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1.5, help="for each comparison")
    options = parser.parse_args()
    print(host_line())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "keep.yaml").write_text(PLAN, encoding="utf-8")
        for threads in (1, os.cpu_count() or 1):
            told = tried(folder, threads), measured(folder, threads, options.minutes)
            print(f"{threads} {'thread' if threads == 1 else 'threads'}: {', '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
