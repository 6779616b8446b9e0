"""What watching costs: hotlap beside other profilers on the same 5 ms loop, interleaved, with an A/A control.

usage: python bench/overhead.py [--rounds 12] [--steps 400]
Peers that are not installed (traceml-ai, gpuprof) are passed over with a line that says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
from pathlib import Path

from interleave import BENCH, PYTHON, Variant, against, host_line, interleave

BASE, CONTROL = "no watcher", "no watcher again (A/A)"
LIGHTNING = "Lightning, no profiler"
TARGET_US, TARGET_SHARE = 50.0, 0.01


def variants(steps: int) -> list[Variant]:
    loop = str(BENCH / "loop.py")

    def plain(watcher: str) -> tuple[str, ...]:
        return (PYTHON, loop, watcher, str(steps))

    found = [
        Variant(BASE, plain("none")),
        Variant(
            "hotlap profile",
            (PYTHON, "-m", "hotlap", "profile", "--full", "--out", "run", *plain("none")[1:]),
        ),
        Variant(CONTROL, plain("none")),
        Variant("cProfile", plain("cprofile")),
        Variant("torch.profiler", plain("torch-profiler")),
        Variant(LIGHTNING, plain("lightning")),
        Variant("Lightning SimpleProfiler", plain("lightning-simple")),
    ]
    if importlib.util.find_spec("gpuprof"):
        found.append(Variant("gpuprof", plain("gpuprof")))
    if importlib.util.find_spec("traceml_ai"):
        start = "import sys; from traceml_ai.launcher.cli import main; sys.exit(main())"
        arguments = ("run", loop, "--mode", "summary", "--args", "none", str(steps))
        found.append(Variant("traceml run", (PYTHON, "-c", start, *arguments)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    print(host_line())
    every = variants(options.steps)
    with tempfile.TemporaryDirectory() as folder:
        figures = interleave(every, options.rounds, Path(folder))
    base_us = statistics.median(run["median_us"] for run in figures[BASE])
    print(
        f"baseline: {BASE}, median step {base_us / 1e3:.2f} ms, {options.rounds} rounds of {options.steps} steps\n"
    )
    print(f"{'watcher':28} {'CPU a step':>12} {'ratio (95 %)':>26} {'wall ratio (95 %)':>26}")
    for variant in every[1:]:
        base = LIGHTNING if "SimpleProfiler" in variant.name else BASE
        if variant.name == LIGHTNING:
            continue
        cpu, wall = (against(figures, base, variant.name, key) for key in ("cpu_us", "p10_us"))
        if cpu is None or wall is None:
            continue
        extra = _median(figures, variant.name) - _median(figures, base)
        print(
            f"{variant.name:28} {extra:+9.1f} us {cpu.value:8.4f} ({cpu.low:.4f} to {cpu.high:.4f})"
            f" {wall.value:8.4f} ({wall.low:.4f} to {wall.high:.4f})"
        )
    _judge(figures, base_us)


def _median(figures: dict[str, list[dict[str, float]]], name: str) -> float:
    return statistics.median(run["cpu_us"] for run in figures[name])


def _judge(figures: dict[str, list[dict[str, float]]], base_us: float) -> None:
    extra = _median(figures, "hotlap profile") - _median(figures, BASE)
    verdict = "reached" if extra <= TARGET_US and extra <= TARGET_SHARE * base_us else "MISSED"
    print(
        f"\ntarget: at most {TARGET_US:.0f} us a step and 1 % of a 5 ms step; hotlap costs {extra:+.1f} us: {verdict}"
    )


if __name__ == "__main__":
    main()
