"""Is every collapse of a posterior found, and no healthy model called collapsed? Seeded runs of four kinds.

usage: python bench/collapse.py [--seeds 20] [--steps 800] [--only KIND]
Beside it, on the same figures, a detector that waits for a falling KL, as many monitors are written: collapsed when
the KL is below a tenth of its highest.
"""

from __future__ import annotations

import argparse
import contextlib
import io
from collections import Counter

import torch

from hotlap.watch import PosteriorMonitor
from hotlap.watch.collapse import State
from interleave import host_line
from vae import KINDS, Kind, training

EVERY = 25  # steps between two looks
FALLEN = 0.1


def judged(kind: Kind, seed: int, steps: int) -> tuple[set[State], State, int | None, bool]:
    """Every state that was told, the last one, since when, and whether a detector of trends saw a collapse."""
    monitor = PosteriorMonitor(update_frequency=EVERY, budget="100%")
    told: set[State] = set()
    highest, trend = 0.0, False
    with contextlib.redirect_stderr(io.StringIO()):
        for mu, logvar, decode in training(kind, seed, steps):
            told.add(monitor.update(mu, logvar, decode=decode).state)
            if monitor.latest is not None:
                highest = max(highest, monitor.latest.total_kl)
                trend = trend or monitor.latest.total_kl < FALLEN * highest
    verdict = monitor.verdict
    return told, verdict.state, verdict.since, trend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--only", choices=[kind.name for kind in KINDS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(host_line())
    print(f"{options.seeds} runs of {options.steps} steps each, a look every {EVERY} steps\n")
    print(f"{'training':22} {'found':>7} {'false alarms':>13} {'falling KL found':>17}  last verdicts")
    for kind in [each for each in KINDS if options.only in (None, each.name)]:
        runs = [judged(kind, seed, options.steps) for seed in range(options.seeds)]
        alarms = sum(bool(told - {State.HEALTHY}) for told, *_ in runs)
        found = sum(last is not State.HEALTHY for _, last, *_ in runs)
        falling = sum(trend for *_, trend in runs)
        last = ", ".join(
            f"{count} {state}" for state, count in sorted(Counter(run[1] for run in runs).items())
        )
        counts = (f"{found}/{len(runs)}", "-") if kind.collapses else ("-", f"{alarms}/{len(runs)}")
        print(f"{kind.name:22} {counts[0]:>7} {counts[1]:>13} {f'{falling}/{len(runs)}':>17}  {last}")


if __name__ == "__main__":
    main()
