"""Runs variants in turn (A B C, C B A, ...), each in a fresh process, and compares them with intervals."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from hotlap.host.machine import inspect_host
from hotlap.stats.compare import Ratio, ratio

BENCH = Path(__file__).parent
PYTHON = sys.executable
PATIENCE_S = 60  # a run takes a few seconds; a peer that hangs must not hold up the bench


@dataclass(frozen=True)
class Variant:
    """A command that writes its figures as JSON into the file that BENCH_FIGURES names."""

    name: str
    argv: Sequence[str]


def interleave(variants: Sequence[Variant], rounds: int, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Figures of every run by variant; a variant that fails is reported and left out of the later rounds."""
    figures: dict[str, list[dict[str, float]]] = {variant.name: [] for variant in variants}
    failed: set[str] = set()
    for turn in range(rounds):
        for variant in variants if turn % 2 == 0 else reversed(variants):
            if variant.name in failed:
                continue
            seen = _run(variant, folder)
            if seen is None:
                failed.add(variant.name)
            else:
                figures[variant.name].append(seen)
    return figures


def _run(variant: Variant, folder: Path) -> dict[str, float] | None:
    target = folder / "figures.json"
    target.unlink(missing_ok=True)
    try:
        ended = subprocess.run(
            variant.argv,
            cwd=folder,
            env={**os.environ, "BENCH_FIGURES": str(target)},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        print(f"{variant.name}: not measured, it did not end within {PATIENCE_S} s")
        return None
    if ended.returncode or not target.is_file():
        print(f"{variant.name}: not measured (exit {ended.returncode}) {ended.stderr.strip()[-200:]}")
        return None
    return {key: float(value) for key, value in json.loads(target.read_text()).items()}


def against(figures: Mapping[str, list[dict[str, float]]], base: str, other: str, key: str) -> Ratio | None:
    """`other` over `base`, from the runs of both."""
    one, two = figures.get(base, []), figures.get(other, [])
    if len(one) < 2 or len(two) < 2:
        return None
    return ratio([run[key] for run in one], [run[key] for run in two])


def host_line() -> str:
    """The machine that the figures are from, as far as it bears on them."""
    busy = psutil.cpu_percent(interval=1.0)
    units = " ".join(inspect_host().cpu_flags or ())
    return (
        f"host: {os.cpu_count()} cores, {platform.machine()} {units}, Python {platform.python_version()}, "
        f"others used {busy:.0f} % of the CPU before the start; {time.strftime('%Y-%m-%d')}"
    )
