"""How often a search keeps a setting that does nothing, and finds one that does: simulated, with the rules of `tune`.

usage: python bench/false_keeps.py [--searches 1000] [--experiments] [--means]
Five candidates in turn, four rounds each, two where they are behind, up to eight where a gain seems to be worth it.
Runs scatter by so much between each other, and the machine's pace between rounds; each candidate truly brings the gain
of its column. In the last lines the machine has two paces, a quarter apart, and changes between two runs with the
probability that is shown. With --experiments they are tried on the running job first, where blocks of steps scatter
as runs do, and only what won or may win goes on to fresh processes. With --means the ratios in the middle are never
asked.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence

from hotlap.experiments.analysis import Change, ChangeTrial, ratio_of
from hotlap.facts.experiment import ExperimentState
from hotlap.facts.verdict import Gain, Ruling
from hotlap.judge.gain import (
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
)
from hotlap.measure.contest import USUAL, scatter_of_rounds
from hotlap.stats.compare import Scatter, pooled, repeated

CANDIDATES = 5
MACHINES = ((0.02, 0.0), (0.05, 0.0), (0.10, 0.0), (0.03, 0.08), (0.05, 0.08))
TWO_PACES = ((0.015, 0.1), (0.015, 0.2), (0.03, 0.2))
APART = 0.25
GAINS = (0.0, 0.05, 0.10)


class Search:
    """One that never changes its incumbent: all candidates meet the original script."""

    of_rounds = staticmethod(gain_of_rounds)

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
            ruling = rule(beside_blocks(self.known(final=over and made <= ROUNDS), shown))
            if over or ruling is not Ruling.UNDECIDED:
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


class WithExperiments(Search):
    """Settings that can be switched while a job runs: those that win there, or may, go on to fresh processes."""

    def kept(self) -> int:
        trials = [ChangeTrial(Change(f"knob-{number}", True, 1.0)) for number in range(CANDIDATES)]
        while pending := [each for each in trials if each.pending]:
            for each in pending:
                each.asked += 1
                each.ratios.append((1 + self.gain) * math.exp(self.chance.gauss(0.0, self.run)))
            scatter = pooled([each.ratios for each in trials], USUAL)
            for each in trials:
                each.ratio = ratio_of(each.ratios, scatter)
        known = [(each, as_gain(each.ratio, len(each.ratios))) for each in trials if each.ratio is not None]
        shown = [
            gain for each, gain in known if each.state is not ExperimentState.NO_GAIN and gain.value >= LEAST
        ]
        return sum(self.duel(each) is Ruling.KEEP for each in shown)


def by_means(ratios: Sequence[float], scatter: Scatter, *, final: bool) -> Gain:
    return as_gain(repeated(ratios, scatter, DONE if final else LOOKING), 2 * len(ratios))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--searches", type=int, default=1000)
    parser.add_argument("--experiments", action="store_true")
    parser.add_argument("--means", action="store_true")
    options = parser.parse_args()
    if options.means:
        Search.of_rounds = staticmethod(by_means)
    chance = random.Random(0)
    gains = "  ".join(f"kept at +{gain:3.0%}" for gain in GAINS)
    print(f"between runs  between rounds  {gains}")
    kind = WithExperiments if options.experiments else Search
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
