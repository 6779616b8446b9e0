"""Several settings within one process: how fast each was, beside the incumbent's blocks before and after it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

from hotlap.facts.blocks import NOT_LIVE, Block, Schedule
from hotlap.facts.rates import TOKENS
from hotlap.facts.timeline import Timeline
from hotlap.stats.compare import Ratio, Scatter, pooled, repeated

Name = TypeVar("Name", bound=Hashable)

_SETTLING = 1 / 3  # of a block: workers start, queues fill, caches warm
_LEAST_STEPS = 4
_USUAL = Scatter(0.02**2, 4)  # between blocks; see measure.duel.USUAL
_LEAST_PAIRS = 2


def pairs(schedule: Schedule, blocks: Sequence[Block], seen: Timeline, counts: str) -> dict[int, list[float]]:
    """By number of the plan, the rate of each of its blocks over that of the incumbent's blocks beside it.

    One that was refused, or whose process died under it, has none.
    """
    rates = [_rate(block, seen, counts) for block in blocks]
    found: dict[int, list[float]] = {number: [] for number in range(1, len(schedule.plans))}
    for index, block in enumerate(blocks):
        beside = [
            rate
            for near in (index - 1, index + 1)
            if 0 <= near < len(blocks) and blocks[near].plan == 0 and (rate := rates[near]) is not None
        ]
        mine = rates[index]
        if block.plan and mine is not None and beside:
            usual = math.exp(sum(map(math.log, beside)) / len(beside))
            found[block.plan].append(mine / usual)
    return found


def ratios(found: Mapping[Name, Sequence[float]], confidence: float) -> dict[Name, Ratio]:
    """Of those that have several pairs; how much these scatter is told by all of them together."""
    several = {name: each for name, each in found.items() if len(each) >= _LEAST_PAIRS}
    scatter = pooled(list(several.values()), _USUAL)
    return {name: repeated(each, scatter, confidence) for name, each in several.items()} if scatter else {}


def refusals(blocks: Sequence[Block]) -> Mapping[int, str]:
    """Why a knob itself says that it cannot act here; what just cannot be switched live is not among them."""
    return {block.plan: block.refused for block in blocks if block.refused and block.refused != NOT_LIVE}


def _rate(block: Block, seen: Timeline, counts: str) -> float | None:
    """What is counted, a second, or steps where batches show no samples; None where too few steps were whole."""
    steps = seen.steps
    inside = [
        index
        for index, (start, wall) in enumerate(zip(steps.start, steps.wall, strict=True))
        if start >= block.begin - _SLACK_NS and start + wall <= block.end + _SLACK_NS
    ]
    settled = inside[math.ceil(len(inside) * _SETTLING) :]
    if counts == TOKENS:
        settled = [index for index in settled if steps.tokens[index] > 0]
    if len(settled) < _LEAST_STEPS:
        return None
    elapsed = sum(steps.wall[index] for index in settled)
    column = steps.tokens if counts == TOKENS else steps.samples
    seen_in = [column[index] for index in settled]
    return (sum(seen_in) if min(seen_in) > 0 else len(settled)) * 1e9 / elapsed


_SLACK_NS = 200_000  # between the mark that ends a step and the hook that follows it
