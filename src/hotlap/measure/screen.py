"""Several settings within one process: how fast each was, beside the incumbent's blocks before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import linear_regression
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
    settled = _settled(blocks, seen, counts)
    own = [step for block, steps in zip(blocks, settled, strict=True) if block.plan == 0 for step in steps]
    expected = _expected(own)
    rates = [_rate(steps, expected) for steps in settled]
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


@dataclass(frozen=True)
class _Step:
    count: int  # of what is counted; 1 where batches show no samples
    wall: int


def _settled(blocks: Sequence[Block], seen: Timeline, counts: str) -> list[list[_Step]]:
    """The whole steps of each block, without those in which its plan settles."""
    steps = seen.steps
    column = steps.tokens if counts == TOKENS else steps.samples
    found = [_inside(block, seen) for block in blocks]
    if counts == TOKENS:
        found = [[index for index in each if column[index] > 0] for each in found]
    are_counted = all(column[index] > 0 for each in found for index in each)
    return [
        [_Step(column[index] if are_counted else 1, steps.wall[index]) for index in each] for each in found
    ]


def _inside(block: Block, seen: Timeline) -> list[int]:
    inside = [
        index
        for index, (start, wall) in enumerate(zip(seen.steps.start, seen.steps.wall, strict=True))
        if start >= block.begin - _SLACK_NS and start + wall <= block.end + _SLACK_NS
    ]
    return inside[math.ceil(len(inside) * _SETTLING) :]


def _expected(steps: Sequence[_Step]) -> Callable[[int], float]:
    """Nanoseconds that the incumbent takes for a step of so much: a part for any step, and a part for each of what is
    counted, by least squares. Where batches are of very different lengths, a block that has met the short ones is no
    slower by it. One part alone where the other would be less than nothing."""
    if not steps:
        return float
    counts, walls = [step.count for step in steps], [step.wall for step in steps]
    each, any_step = sum(walls) / sum(counts), 0.0
    if len(set(counts)) > 1:
        slope, offset = linear_regression(counts, walls)
        if slope <= 0:
            each, any_step = 0.0, sum(walls) / len(walls)
        elif offset > 0:
            each, any_step = slope, offset
    return lambda count: any_step + each * count


def _rate(steps: Sequence[_Step], expected: Callable[[int], float]) -> float | None:
    """What the incumbent would take over what was taken; None where too few steps were whole."""
    if len(steps) < _LEAST_STEPS:
        return None
    return sum(expected(step.count) for step in steps) / sum(step.wall for step in steps)


_SLACK_NS = 200_000  # between the mark that ends a step and the hook that follows it
