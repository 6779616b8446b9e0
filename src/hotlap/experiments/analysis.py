"""From blocks of steps to ratios: how fast each variant was beside the original script's blocks before and after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import linear_regression, median
from typing import Any

from hotlap.facts.diagnosis import Interval
from hotlap.facts.experiment import LEAST_GAIN, Experiment, ExperimentState, StepBlock
from hotlap.stats.compare import Ratio, Scatter, pooled, repeated

CONFIDENCE = 0.99  # whoever looks after each round is fooled more often than who looks once
_USUAL = Scatter(0.02**2, 4)  # between blocks, beside what this job shows
ORIGINAL = -1  # in place of a change's number


@dataclass(frozen=True)
class LabelledBlock:
    """A block, and the number of the change that it shows; ORIGINAL where it shows none."""

    change: int
    block: StepBlock


@dataclass(frozen=True)
class _Step:
    """`count` is what a gain is held against, `size` the samples of the batch."""

    count: int
    size: int
    wall: int


def ratios(seen: Sequence[LabelledBlock], beside_ns: float = 0.0) -> tuple[dict[int, list[float]], Scatter]:
    """By change the ratio of each of its blocks, and how much such a ratio scatters.

    `beside_ns` is what a step takes on average for stages that do not occur while experiments run, as validation.
    The original's blocks are held against their own neighbours in the same way: that is the control.
    """
    counts = _counted(seen)
    own = [step for one, steps in zip(seen, counts, strict=True) if one.change == ORIGINAL for step in steps]
    expected = _expected(own)
    each = beside_ns * len(own) / max(1, sum(step.count for step in own))
    rates = [_rate(steps, expected, each) for steps in counts]
    of_original = [index for index, one in enumerate(seen) if one.change == ORIGINAL and rates[index]]
    found: dict[int, list[float]] = {}
    for index, one in enumerate(seen):
        rate = rates[index]
        near = _neighbours(index, of_original)
        if rate is not None and near:
            usual = math.exp(sum(math.log(rates[at] or 1.0) for at in near) / len(near))
            found.setdefault(one.change, []).append(rate / usual)
    control = found.pop(ORIGINAL, [])
    return found, pooled([control, *found.values()], _USUAL)


def ratio_of(several: Sequence[float], scatter: Scatter) -> Ratio:
    return repeated(several, scatter, CONFIDENCE)


def _neighbours(index: int, of_original: Sequence[int]) -> list[int]:
    """The nearest blocks of the original before and after it."""
    before = [at for at in of_original if at < index][-1:]
    after = [at for at in of_original if at > index][:1]
    return before + after


def _counted(seen: Sequence[LabelledBlock]) -> list[list[_Step]]:
    """The steps of each block: they count for tokens where all steps show them, else for samples, else for 1."""
    blocks = [one.block for one in seen]

    def known(column: Sequence[Sequence[int]]) -> bool:
        return all(count > 0 for counts in column for count in counts)

    ones = [[1] * len(block.walls) for block in blocks]
    sizes = [block.samples for block in blocks]
    tokens = [block.tokens for block in blocks]
    counts: Sequence[Sequence[int]] = tokens if known(tokens) else sizes if known(sizes) else ones
    rows = zip(counts, sizes if known(sizes) else counts, blocks, strict=True)
    return [
        [_Step(*step) for step in zip(count, size, block.walls, strict=True)] for count, size, block in rows
    ]


def _expected(own: Sequence[_Step]) -> Callable[[_Step], float]:
    """Nanoseconds that the original takes for what a step does: a part for any step, and a part for each of what is
    counted, by least squares. A block that has met short samples is no faster by it. One part alone where the other
    would be less than nothing. A batch of a size that the original never had is several of its own."""
    if not own:
        return lambda step: float(step.count)
    counts, walls = [step.count for step in own], [step.wall for step in own]
    each, any_step = sum(walls) / sum(counts), 0.0
    if len(set(counts)) > 1:
        slope, offset = linear_regression(counts, walls)
        if slope <= 0:
            each, any_step = 0.0, sum(walls) / len(walls)
        elif offset > 0:
            each, any_step = slope, offset
    sizes = [step.size for step in own]
    usual, least, most = median(sizes), min(sizes), max(sizes)

    def taken(step: _Step) -> float:
        steps = 1.0 if least <= step.size <= most else step.size / usual
        return any_step * steps + each * step.count

    return taken


def _rate(steps: Sequence[_Step], expected: Callable[[_Step], float], beside_each: float) -> float | None:
    """What the original would take over what was taken; None where no step was measured."""
    beside = sum(beside_each * step.count for step in steps)
    taken = sum(step.wall for step in steps) + beside
    return (sum(expected(step) for step in steps) + beside) / taken if taken > 0 else None


# A change that an experiment tries, and what its blocks have shown so far.


LEAST_TURNS = 3  # before a gain is believed: two may have met the same disturbance
_PLAIN = 10 * LEAST_GAIN  # the lower end of an interval: no disturbance makes up for that
MOST_TURNS = 8  # more tell hardly more: what scatters as much is undecided
_LARGE, _MOST_OF_LARGE = 0.1, 24  # a gain that would be the verdict: as many turns as the time allows
# They may end the script (a model may be made for one batch size) or take long to build: tried after all others.
_LAST = ("trim-padding", "bucketing", "batch-size", "compile")


@dataclass(frozen=True)
class Change:
    """`bound` is the share of the step that it attacks: exposed time, the most that it could save."""

    knob: str
    setting: Any
    bound: float
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        return {**self.beside, self.knob: self.setting}

    @property
    def comes_last(self) -> int:
        """0 for most; the others in the order in which they come."""
        return _LAST.index(self.knob) + 1 if self.knob in _LAST else 0


@dataclass
class ChangeTrial:
    """The experiment of one change under way."""

    change: Change
    ratios: list[float] = field(default_factory=list)
    ratio: Ratio | None = None
    refused: str = ""
    numerics: Mapping[str, str] = field(default_factory=dict)
    settling_ns: list[int] = field(default_factory=list)
    asked: int = 0  # turns, also those that have not come yet

    @property
    def state(self) -> ExperimentState:
        if self.refused:
            return ExperimentState.REFUSED
        if self.ratio is None:
            return ExperimentState.NOT_TRIED
        gain, low, high = self.ratio.value - 1, self.ratio.low - 1, self.ratio.high - 1
        turns = len(self.ratios)
        if high < 0 or (high < LEAST_GAIN and turns >= LEAST_TURNS):
            return ExperimentState.NO_GAIN
        sure = (low > 0 and turns >= LEAST_TURNS) or low > _PLAIN
        return ExperimentState.FASTER if sure and gain >= LEAST_GAIN else ExperimentState.UNDECIDED

    @property
    def pending(self) -> bool:
        """Whether more turns could tell more, also of a gain that one turn has made plain."""
        few = self.state is ExperimentState.FASTER and len(self.ratios) < LEAST_TURNS
        large = self.ratio is not None and self.ratio.value - 1 >= _LARGE
        most = _MOST_OF_LARGE if large else MOST_TURNS
        return (
            few or self.state in (ExperimentState.NOT_TRIED, ExperimentState.UNDECIDED)
        ) and self.asked < most

    @property
    def promise(self) -> float:
        """The largest gain that is still possible."""
        if self.ratio is not None:
            return self.ratio.high - 1
        return 1 / max(1e-3, 1 - self.change.bound) - 1

    def result(self, why_not: str) -> Experiment:
        """`why_not` is told of what took no turns."""
        state, ratio, change = self.state, self.ratio, self.change
        classes = [self.numerics.get(key, "") for key in change.settings]
        first, *rest = self.settling_ns or [0]
        built = (first - min(rest)) / 1e9 if rest and change.knob == "compile" else None
        return Experiment(
            change.knob,
            _shown(change.setting),
            state,
            ratio.value - 1 if ratio else None,
            Interval(ratio.low - 1, ratio.high - 1) if ratio else None,
            loosest(classes),
            self.refused or (why_not if state is ExperimentState.NOT_TRIED else ""),
            len(self.ratios),
            change.beside,
            built,
        )


def loosest(classes: list[str]) -> str:
    """Of several classes of numerics that act together."""
    order = ["", "bitwise", "audited", "rounding", "statistical"]
    return max((each for each in classes if each in order), key=order.index, default="")


def _shown(setting: Any) -> str:
    return str(setting).lower() if isinstance(setting, bool) else str(setting)
