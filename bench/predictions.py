"""Are predictions of loader settings right? Each is set against the throughput that the setting really brings.

usage: python bench/predictions.py [--quick] [--rounds 3] [--steps 150] [--threads N] [--plain]
A job is profiled with `--ceiling` under one setting; from that profile alone hotlap predicts other settings, which are
then run in processes of their own. Base and targets take turns. Prints predicted and measured, the median error, and
how often the measured throughput lay within the predicted interval. `--plain` profiles without `--ceiling`: what the
model of the loader says by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hotlap.cost.pipeline import Load, Setting, cached, lighter, predict
from hotlap.cost.prediction import Prediction
from hotlap.cost.reading import cores_for
from hotlap.diagnose.inputs import input_of, item_line
from hotlap.facts.arrow import read_timelines
from hotlap.facts.codec import read_json
from hotlap.facts.host import Host
from hotlap.ports.rule import Sight
from interleave import BENCH, PYTHON, host_line

Change = Callable[[Sight, Load], Load]


@dataclass(frozen=True)
class Target:
    """A setting to predict: its arguments, its workers and prefetch, and what it changes about the items."""

    name: str
    arguments: Sequence[str]
    setting: Setting
    change: Change | None = None


@dataclass(frozen=True)
class Case:
    """A job under its base setting, and the settings that are predicted from there."""

    name: str
    command: Sequence[str]
    base: Sequence[str]
    targets: Sequence[Target]


@dataclass(frozen=True)
class Run:
    """One profile."""

    steps_per_s: float
    sight: Sight


def keep_items(_: Sight, load: Load) -> Load:
    return cached(load)


def drop_top_line(sight: Sight, load: Load) -> Load:
    """The items without the line that holds most of their time: it is done once, at set-up."""
    line = item_line(sight.timeline, 0)
    left = 1.0 - (line.share if line else 0.0)
    work = load.work
    return lighter(load, replace(work, cpu_s=work.cpu_s * left, queue_s=work.queue_s * left))


def workers(*counts: int) -> list[Target]:
    return [Target(f"{count} workers", ["--workers", str(count)], Setting(count)) for count in counts]


def synthetic() -> Iterator[Case]:
    script = [str(BENCH / "loader_job.py")]
    kept = Target("cached", ["--cached"], Setting(0), keep_items)
    cpu = ["--cpu-ms", "0.3"]
    yield Case("items on the CPU", [*script, *cpu], [], [*workers(1, 2, 3), kept])
    wait = ["--wait-ms", "1", "--batch", "16"]
    deeper = Target("2 workers, prefetch 4", ["--workers", "2", "--prefetch", "4"], Setting(2, 4))
    yield Case("items that wait", [*script, *wait], [], [*workers(1, 2, 3), deeper, kept])
    cheap = ["--batch", "128", "--hidden", "256"]
    yield Case("cheap items", [*script, *cheap], [], workers(1, 2))
    yield Case("cheap items, too many workers", [*script, *cheap], ["--workers", "2"], workers(0))


def printer(folder: Path) -> Case:
    make = ["-m", "hotlap_recipes.printer_tcn.make_data", "--out", str(folder), "--layers", "3"]
    subprocess.run([PYTHON, *make], check=True, capture_output=True)
    train = ["-m", "hotlap_recipes.printer_tcn.train", "--size", "tiny", "--epochs", "99"]
    command = [*train, "--data_dir", str(folder / "data_simulation_*")]
    counts = [
        Target(f"{count} workers", ["--num_workers", str(count)], Setting(count)) for count in (1, 2, 3)
    ]
    return Case(
        "printer_tcn",
        command,
        [],
        [
            *counts,
            Target("pre-normalised", ["--pre_normalize"], Setting(0), drop_top_line),
            Target("cached", ["--cache_data"], Setting(0), keep_items),
        ],
    )


def profile(command: Sequence[str], options: argparse.Namespace, *more: str) -> Run:
    """The throughput of a command under hotlap, and what hotlap saw."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        hotlap = [PYTHON, "-m", "hotlap", "profile", *more, "--steps", str(options.steps)]
        hotlap += ["--out", str(out), "--json", "view.json"]
        environment = os.environ | ({"OMP_NUM_THREADS": str(options.threads)} if options.threads else {})
        subprocess.run([*hotlap, *command], cwd=folder, env=environment, check=True, capture_output=True)
        view = json.loads((Path(folder) / "view.json").read_text(encoding="utf-8"))
        sight = Sight(read_timelines(out / "timeline.arrow"), read_json(out / "host.json", Host))
        return Run(view["throughput"]["steps_per_s"], sight)


def predicted(base: Run, target: Target) -> Prediction | None:
    seen = input_of(base.sight)
    if seen is None:
        return None
    after = target.change(base.sight, seen.load) if target.change else None
    cores = cores_for(base.sight.timeline, base.sight.host)
    return predict(seen.load, seen.setting, target.setting, cores, after)


def measure(case: Case, options: argparse.Namespace) -> Iterator[tuple[Target, float, float, bool]]:
    """Each target with predicted and measured steps a second, and whether the interval held."""
    bases: list[Run] = []
    figures: dict[str, list[float]] = {target.name: [] for target in case.targets}
    for turn in range(options.rounds):
        order = case.targets if turn % 2 == 0 else [*reversed(case.targets)]
        more = [] if options.plain else ["--ceiling"]
        bases.append(profile([*case.command, *case.base], options, *more))
        for target in order:
            run = profile([*case.command, *target.arguments], options)
            figures[target.name].append(run.steps_per_s)
    bases.sort(key=lambda run: run.steps_per_s)
    base = bases[len(bases) // 2]
    for target in case.targets:
        foreseen = predicted(base, target)
        if foreseen is None:
            print(f"{case.name}, {target.name}: hotlap saw no loader", file=sys.stderr)
            continue
        measured = statistics.median(figures[target.name])
        low, high = (
            base.steps_per_s * (1 + each) for each in (foreseen.interval.low, foreseen.interval.high)
        )
        yield target, base.steps_per_s * (1 + foreseen.gain), measured, low <= measured <= high


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="one round of few steps: to see that it works")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the jobs (default: as it is)")
    parser.add_argument("--plain", action="store_true", help="profile without --ceiling")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.steps = 1, 40
    print(host_line())
    print(f"{'job':32} {'setting':24} {'predicted':>12} {'measured':>12} {'error':>8}  in interval")
    errors, held = [], []
    with tempfile.TemporaryDirectory() as folder:
        for case in [*synthetic(), printer(Path(folder))]:
            for target, foreseen, measured, inside in measure(case, options):
                error = foreseen / measured - 1
                errors.append(abs(error))
                held.append(inside)
                figures = f"{foreseen:9.1f}/s {measured:10.1f}/s {error:8.1%}"
                print(f"{case.name:32} {target.name:24} {figures}  {'yes' if inside else 'no'}", flush=True)
    print(
        f"{len(errors)} cases: median error {statistics.median(errors):.1%}, "
        f"measured within the interval in {sum(held)} of {len(held)}"
    )


if __name__ == "__main__":
    main()
