"""Figures of several trials in one count, so that they can be held against each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hotlap.facts.rates import SAMPLES, STEPS, TOKENS, steadiest, usual_of
from hotlap.facts.trial import Figures, Goal, worth

OTHER_TOKENS = 2.0  # times as many in a sample: another script counts something else, or cuts its sequences

Group = Sequence[Figures]


def knows(figures: Figures, counts: str) -> bool:
    return counts == figures.counts or counts in figures.rates


def counted(figures: Figures, counts: str) -> Figures:
    """With the throughput in this count, which must be known."""
    if counts == figures.counts:
        return figures
    return replace(figures, throughput=figures.rates[counts].per_s, counts=counts)


def without_tokens(figures: Figures) -> Figures:
    """Of a run whose samples were made shorter: tokens would be no measure of it."""
    rates = {name: rate for name, rate in figures.rates.items() if name != TOKENS}
    return replace(counted(figures, usual_of(rates)), rates=rates)


def count_for(groups: Sequence[Group], *, one_job: bool = True) -> str | None:
    """The count that all figures can be told in: tokens where half of them or more are steadier so, else their own
    where it is the same, else samples, else steps. One run alone may have had a noisy neighbour.

    Tokens of two jobs need not be the same thing (letters and words, sound and its features): where a sample of one
    holds twice as many, samples are counted. None where nothing was counted in all of them.
    """
    every = [each for group in groups for each in group]
    own = {each.counts for each in every}
    doubtful = TOKENS in own and not one_job and _other_tokens(groups)
    votes = sum(steadiest(each.rates) == TOKENS for each in every if each.rates) if one_job else 0
    steadier = votes > 0 and 2 * votes >= len(every)
    agreed = own if len(own) == 1 and not doubtful else set()
    order = [*({TOKENS} if steadier else agreed), SAMPLES, STEPS]
    return next((counts for counts in order if all(knows(each, counts) for each in every)), None)


def alike(*groups: Group, one_job: bool = True) -> list[list[Figures]]:
    """All in one count; as they are where there is none."""
    counts = count_for(groups, one_job=one_job)
    return [[counted(each, counts) if counts else each for each in group] for group in groups]


def worths(goal: Goal, *groups: Group) -> list[list[float]]:
    """What each is worth by the goal, all in one count."""
    return [[worth(each, goal) for each in group] for group in alike(*groups)]


def tokens_per_sample(figures: Figures) -> float | None:
    tokens, samples = figures.rates.get(TOKENS), figures.rates.get(SAMPLES)
    return tokens.per_s / samples.per_s if tokens and samples else None


def _other_tokens(groups: Sequence[Group]) -> bool:
    sizes = [[size for each in group if (size := tokens_per_sample(each))] for group in groups]
    means = [sum(group) / len(group) for group in sizes if group]
    return bool(means) and max(means) > OTHER_TOKENS * min(means)
