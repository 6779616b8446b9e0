"""How often a search keeps a setting that does nothing, and finds one that does: simulated, with the rules of `tune`.

usage: python bench/false_keeps.py [--searches 1000] [--live] [--opening] [--means]
Five candidates in turn, four rounds each, two where they are behind, up to eight where a gain seems to be worth it.
Runs scatter by so much between each other, and the machine's pace between rounds; each candidate truly brings the gain
of its column. In the last lines the machine has two paces, a quarter apart, and changes between two runs with the
probability that is shown. With --live they take turns within one process first, where blocks of steps scatter as runs
do. With --opening they were predicted to help and taken in together, and stay by what they show. With --means the
ratios in the middle are never asked.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence

from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import (
    BEHIND,
    DONE,
    LEAST,
    LOOKING,
    ROUNDS,
    as_gain,
    beside_blocks,
    enough,
    gain_of,
    gain_of_rounds,
    rule,
    rule_predicted,
)
from hotlap.measure.duel import USUAL, scatter_of_rounds
from hotlap.pipeline.screening import MORE_TURNS, MOST_TURNS, Screening
from hotlap.propose.search import Candidate
from hotlap.stats.compare import Scatter, pooled, repeated

CANDIDATES = 5
MACHINES = ((0.02, 0.0), (0.05, 0.0), (0.10, 0.0), (0.03, 0.08), (0.05, 0.08))
TWO_PACES = ((0.015, 0.1), (0.015, 0.2), (0.03, 0.2))
APART = 0.25
GAINS = (0.0, 0.05, 0.10)


class Search:
    """One that never changes its incumbent: all candidates meet the script as it is."""

    of_rounds, judge, least = staticmethod(gain_of_rounds), staticmethod(rule), 1

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
            over = enough(made, beside_blocks(self.known(final=False), shown))
            ruling = self.judge(beside_blocks(self.known(final=over and made <= ROUNDS), shown))
            if (over or ruling is not Ruling.UNDECIDED) and made >= self.least:
                return ruling

    def paces(self) -> tuple[float, float]:
        """Of the machine in the two runs of a round."""
        return (self.chance.gauss(0.0, self.pace),) * 2

    def round(self) -> None:
        old, new = (math.exp(pace + self.chance.gauss(0.0, self.run)) for pace in self.paces())
        self.incumbent.append(old)
        self.challengers[-1].append(new * (1 + self.gain))
        self.ratios[-1].append(new / old * (1 + self.gain))

    def known(self, *, final: bool) -> Gain | None:
        if len(self.ratios[-1]) > 1:
            return self.of_rounds(self.ratios[-1], scatter_of_rounds(self.ratios), final=final)
        scatter = pooled([self.incumbent, *self.challengers], USUAL)
        return gain_of(self.incumbent[-1:], self.challengers[-1], scatter, final=final)


class TwoPaces(Search):
    """On a machine that is either quick or slow."""

    slow = False

    def paces(self) -> tuple[float, float]:
        first, second = self.next_pace(), self.next_pace()
        turned = len(self.ratios[-1]) % 2  # rounds go back and forth
        return (second, first) if turned else (first, second)

    def next_pace(self) -> float:
        self.slow ^= self.chance.random() < self.pace
        return -APART if self.slow else 0.0


class Opening(Search):
    """Settings that were predicted to help, and stay by what they show."""

    judge, least = staticmethod(rule_predicted), BEHIND

    def duel(self, shown: Gain | None = None) -> Ruling:
        super().duel(shown)
        known = self.known(final=False)
        return Ruling.KEEP if known is not None and known.value >= LEAST else Ruling.DROP


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


def by_means(ratios: Sequence[float], scatter: Scatter, *, final: bool) -> Gain:
    return as_gain(repeated(ratios, scatter, DONE if final else LOOKING), 2 * len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--live", action="store_true")
    parser.add_argument("--opening", action="store_true")
    parser.add_argument("--means", action="store_true")
    options = parser.parse_args()
    if options.means:
        Search.of_rounds = staticmethod(by_means)
    chance = random.Random(0)
    gains = "  ".join(f"kept at +{gain:3.0%}" for gain in GAINS)
    print(f"between runs  between rounds  {gains}")
    kind = LiveSearch if options.live else Opening if options.opening else Search
    told(kind, MACHINES, chance, options.searches)
    if kind is Search:
        print(f"between runs   pace changes   {gains}")
        told(TwoPaces, TWO_PACES, chance, options.searches)


def told(
    kind: type[Search], machines: Sequence[tuple[float, float]], chance: random.Random, searches: int
) -> None:
    for run, pace in machines:
        kept = [sum(kind(chance, run, pace, gain).kept() for _ in range(searches)) for gain in GAINS]
        shares = "  ".join(f"{each / searches / CANDIDATES:11.1%}" for each in kept)
        print(f"{run:12.1%}  {pace:14.0%}  {shares}", flush=True)


if __name__ == "__main__":
    main()
