"""What the guard says of a plan that changes the batches: simulated, by how far the plan's mean loss truly lies off.

usage: python bench/guard_power.py [--plans 3000]
Runs scatter from seed to seed, and those of the plan draw other batches, so that the same seed pairs nothing. Three
seeds, then five, eight and twelve, as `tune` asks for them.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter

from hotlap.judge.guard import chance
from hotlap.pipeline.guarding import SEEDS
from hotlap.stats.equivalence import equivalence

OFF = (0.0, 0.5, 1.0, 1.4, 2.0, 3.0)  # times the deviation from seed to seed


def answer(draws: random.Random, off: float) -> str:
    base, plan = ([draws.gauss(mean, 1.0) for _ in range(SEEDS[-1])] for mean in (0.0, off))
    for seeds in SEEDS:
        differences = [other - one for one, other in zip(base[:seeds], plan, strict=False)]
        found = equivalence(differences, chance(base[:seeds]))
        if found.same or found.different:
            return "same" if found.same else "different"
    return "not decided"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--plans", type=int, default=3000)
    options = parser.parse_args()
    draws = random.Random(0)
    print("off by   same  different  not decided")
    for off in OFF:
        said = Counter(answer(draws, off) for _ in range(options.plans))
        shares = [said[word] / options.plans for word in ("same", "different", "not decided")]
        print(f"{off:6.1f}  {shares[0]:5.1%}  {shares[1]:9.1%}  {shares[2]:11.1%}", flush=True)


if __name__ == "__main__":
    main()
