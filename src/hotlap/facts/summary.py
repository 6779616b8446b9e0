"""A timeline's steady state in a few numbers, shared by the rules and the report.

`ms` of a stage is its mean per step, so that the stages add up to the mean step; medians and p95 stand beside
it because stalls are heavy-tailed. None means: not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hotlap.facts.timeline import Stage, Timeline
from hotlap.units import NS_PER_MS, NS_PER_S


@dataclass(frozen=True)
class StageSummary:
    """One stage over the steady steps. `share` is its part of the wall time."""

    ms: float
    share: float
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True)
class Summary:
    """The steady steps of one timeline; `n` is 0 and the rest None or empty where no step was steady."""

    n: int
    seconds: float
    step_ms_median: float | None = None
    step_ms_p95: float | None = None
    stages: Mapping[Stage, StageSummary] = field(default_factory=dict)
    steps_per_s: float | None = None
    samples_per_s: float | None = None
    tokens_per_s: float | None = None
    padding_share: float | None = None
    coverage: float | None = None

    @property
    def step_ms(self) -> float | None:
        """The mean step: what the stages add up to, and what throughput follows."""
        return self.seconds * 1e3 / self.n if self.n else None

    def share(self, *stages: Stage) -> float:
        """The part of a step that these stages hold together; a stage that never ran holds nothing."""
        return sum(self.stages[stage].share for stage in stages if stage in self.stages)

    def ms(self, *stages: Stage) -> float:
        """Mean milliseconds a step that these stages hold together."""
        return sum(self.stages[stage].ms for stage in stages if stage in self.stages)


def summarise(timeline: Timeline) -> Summary:
    """The numbers of the steady steps."""
    steps, first = timeline.steps, timeline.steady_from
    walls = steps.wall[first:]
    total = sum(walls)
    if not walls or total <= 0:
        return Summary(n=0, seconds=0.0)
    ordered = sorted(walls)
    stages = {stage: _stage(column[first:], total) for stage, column in steps.stages.items()}
    named = sum(each.share for stage, each in stages.items() if stage is not Stage.OTHER)
    return Summary(
        n=len(walls),
        seconds=total / NS_PER_S,
        step_ms_median=at(ordered, 0.5) / NS_PER_MS,
        step_ms_p95=at(ordered, 0.95) / NS_PER_MS,
        stages=stages,
        steps_per_s=len(walls) * NS_PER_S / total,
        samples_per_s=_rate(steps.samples[first:], walls),
        tokens_per_s=_rate(steps.tokens[first:], walls),
        padding_share=_padding(steps.tokens[first:], steps.padded[first:]),
        coverage=min(1.0, named),
    )


def _stage(column: Sequence[int], total: int) -> StageSummary:
    ordered = sorted(column)
    spent = sum(ordered)
    return StageSummary(
        ms=spent / len(ordered) / NS_PER_MS,
        share=spent / total,
        p50_ms=at(ordered, 0.5) / NS_PER_MS,
        p95_ms=at(ordered, 0.95) / NS_PER_MS,
    )


def at(ordered: Sequence[int], quantile: float) -> float:
    """A quantile of sorted values."""
    # stats/quantile.py does the same for any sequence, but facts are below stats and may not import it.
    place = quantile * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _rate(counts: Sequence[int], walls: Sequence[int]) -> float | None:
    """Per second, over the steps where it was counted: what was not seen is not nothing."""
    seen = [(count, wall) for count, wall in zip(counts, walls, strict=True) if count >= 0]
    elapsed = sum(wall for _, wall in seen)
    return sum(count for count, _ in seen) * NS_PER_S / elapsed if elapsed > 0 else None


def _padding(tokens: Sequence[int], padded: Sequence[int]) -> float | None:
    """Share of the positions in a batch that hold no token."""
    seen = [(real, empty) for real, empty in zip(tokens, padded, strict=True) if real >= 0 and empty >= 0]
    positions = sum(real + empty for real, empty in seen)
    return sum(empty for _, empty in seen) / positions if positions > 0 else None
