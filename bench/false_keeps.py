"""How often a search keeps a setting that does nothing, and finds one that does: simulated, with the rules of `tune`.

usage: python bench/false_keeps.py [--searches 1000] [--live]
Five candidates in turn, four rounds each, or up to eight where a gain seems to be worth it. Runs scatter by so much
between each other, and the machine's pace between rounds; each candidate truly brings the gain of its column. With
--live they take turns within one process first, where blocks of steps scatter as runs do.
"""

from __future__ import annotations

import argparse
import math
import random

from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import ROUNDS, beside_blocks, enough, gain_of, gain_of_rounds, rule
from hotlap.measure.duel import USUAL, scatter_of_rounds
from hotlap.pipeline.screening import MORE_TURNS, MOST_TURNS, Screening
from hotlap.propose.search import Candidate
from hotlap.stats.compare import pooled

CANDIDATES = 5
MACHINES = ((0.02, 0.0), (0.05, 0.0), (0.10, 0.0), (0.03, 0.08), (0.05, 0.08))
GAINS = (0.0, 0.05, 0.10)


class Search:
    """One that never changes its incumbent: all candidates meet the script as it is."""

    def __init__(self, chance: random.Random, run: float, pace: float, gain: float) -> None:
        self.chance, self.run, self.pace, self.gain = chance, run, pace, gain
        self.incumbent: list[float] = []
        self.challengers: list[list[float]] = []
        self.ratios: list[list[float]] = []

    def kept(self) -> int:
        return sum(self.duel() is Ruling.KEEP for _ in range(CANDIDATES))

    def duel(self, shown: Gain | None = None) -> Ruling:
        self.challengers.append([])
        self.ratios.append([])
        while True:
            self.round()
            made = len(self.ratios[-1])
            over = enough(made, self.known(final=False))
            ruling = rule(beside_blocks(self.known(final=over and made <= ROUNDS), shown))
            if over or ruling is not Ruling.UNDECIDED:
                return ruling

    def round(self) -> None:
        pace = self.chance.gauss(0.0, self.pace)
        old, new = (math.exp(pace + self.chance.gauss(0.0, self.run)) for _ in range(2))
        self.incumbent.append(old)
        self.challengers[-1].append(new * (1 + self.gain))
        self.ratios[-1].append(new / old * (1 + self.gain))

    def known(self, *, final: bool) -> Gain | None:
        if len(self.ratios[-1]) > 1:
            return gain_of_rounds(self.ratios[-1], scatter_of_rounds(self.ratios), final=final)
        scatter = pooled([self.incumbent, *self.challengers], USUAL)
        return gain_of(self.incumbent[-1:], self.challengers[-1], scatter, final=final)


class LiveSearch(Search):
    """Settings that can be switched while a job runs."""

    def kept(self) -> int:
        screening = Screening()
        several = [Candidate(f"knob-{number}", True, None, None, 0.0) for number in range(CANDIDATES)]
        undecided = several
        for _ in range(1 + MORE_TURNS):
            screening.learn({each.key: self.turns() for each in undecided})
            undecided = screening.undecided(several)
        met = [each for each in several if not screening.hopeless(each)]
        return sum(self.duel(screening.gains[each.key]) is Ruling.KEEP for each in met)

    def turns(self) -> list[float]:
        return [(1 + self.gain) * math.exp(self.chance.gauss(0.0, self.run)) for _ in range(MOST_TURNS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--live", action="store_true")
    options = parser.parse_args()
    kind = LiveSearch if options.live else Search
    chance = random.Random(0)
    print("between runs  between rounds  " + "  ".join(f"kept at +{gain:3.0%}" for gain in GAINS))
    for run, pace in MACHINES:
        kept = [sum(kind(chance, run, pace, gain).kept() for _ in range(options.searches)) for gain in GAINS]
        shares = "  ".join(f"{each / options.searches / CANDIDATES:11.1%}" for each in kept)
        print(f"{run:12.0%}  {pace:14.0%}  {shares}", flush=True)


if __name__ == "__main__":
    main()
