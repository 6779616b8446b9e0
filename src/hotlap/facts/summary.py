"""A timeline's steady state in a few numbers, shared by the rules and the report.

`ms` of a stage is its mean per step, so that the stages add up to the mean step; medians and p95 stand beside
it because stalls are heavy-tailed. None means: not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from hotlap.facts.timeline import Rehearsal, Stage, Timeline
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
    exchanged = timeline.comm_stages.get(Stage.OTHER, 0.0) * NS_PER_S / total  # has a name: an exchange
    named = sum(each.share for stage, each in stages.items() if stage is not Stage.OTHER) + exchanged
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
    # stats/robust.py does the same for any sequence, but facts are below stats and may not import it.
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


# Which rank sets the pace.
#
# Ranks that synchronise all show the same wall time: the fast ones wait for the slow one, inside collectives.
# So a rank is judged by its own work: its step without the time in collectives, or, where that was not
# measured, without the backward pass and the optimizer, in which the waiting happens.


WAITS = (Stage.BACKWARD, Stage.OPTIMIZER)


def by_pace(timelines: Sequence[Timeline]) -> tuple[Timeline, ...]:
    """The timelines, the slowest rank first; ranks that cannot be told apart keep their order."""
    if len(timelines) < 2:
        return tuple(timelines)
    works = own_work_ms(timelines)
    order = sorted(range(len(timelines)), key=lambda index: (-(works[index] or 0.0), timelines[index].rank))
    return tuple(timelines[index] for index in order)


def own_work_ms(
    timelines: Sequence[Timeline], summaries: Sequence[Summary] | None = None
) -> list[float | None]:
    """Milliseconds of a mean step that each rank spends on its own work; None without a steady step.

    `summaries` are those of the timelines, for a caller that has them already.
    """
    summaries = summaries or [summarise(timeline) for timeline in timelines]
    measured = all(timeline.comm_s is not None for timeline in timelines)
    return [_own(timeline, summary, measured) for timeline, summary in zip(timelines, summaries, strict=True)]


def _own(timeline: Timeline, summary: Summary, measured: bool) -> float | None:
    if summary.step_ms is None:
        return None
    if measured and timeline.comm_s is not None:
        return summary.step_ms - timeline.comm_s * 1e3 / summary.n
    return summary.step_ms - summary.ms(*WAITS) if timeline.world > 1 else summary.step_ms


# What other input would bring: steps on a replayed batch, or on items made by other workers, after the window.


SLOWER = 0.05  # without input than with it
APART = 1.5  # times what a step takes beside its input, where nothing overlaps
WOKEN = 3.0
"""Times as fast as beside its input: a process that pauses for input computes with sleeping threads and cold caches,
1.5 to 2.2 times as long where it was measured. A neighbour that took the machine before and is gone by now looks just
the same, so that is believed only where nobody was seen; else `APART` holds on both sides."""
FOREIGN = 0.2  # of the cores, in use by others: as much as makes a report call the window disturbed


@dataclass(frozen=True)
class FreeInput:
    """A mean step whose input costs nothing, and the gain in throughput: the most that any fix of input can bring.

    `disturbed`: the figures cannot be true of one and the same machine, so something else took it meanwhile.
    """

    step_ms: float
    gain: float
    low: float
    high: float
    disturbed: bool = False


def free_input(timeline: Timeline, summary: Summary) -> FreeInput | None:
    """None where it was not measured."""
    if timeline.free_input_s is None or summary.step_ms is None:
        return None
    mean, median = _beside_input_ms(timeline)
    # Free input is a median of few steps: the stalls and the occasional stages of all others stay.
    stalls = max(0.0, mean - median)
    measured = timeline.free_input_s * 1e3
    low, high = (each * 1e3 for each in timeline.free_input_range_s or (timeline.free_input_s,) * 2)
    gain, least, most = (summary.step_ms / (step + stalls) - 1.0 for step in (measured, high, low))
    fastest = APART if _shared(timeline) else WOKEN
    apart = not _overlaps(timeline) and not median / fastest <= measured <= median * APART
    return FreeInput(measured + stalls, gain, least, most, gain <= -SLOWER or apart)


def rehearsed(timeline: Timeline, summary: Summary) -> dict[int, Rehearsal]:
    """By number of workers. Steps that validate or save are not rehearsed: their time is added as it was."""
    occasional = (summary.ms(Stage.VALIDATE) + summary.ms(Stage.CHECKPOINT)) / 1e3
    return {each.workers: replace(each, step_s=each.step_s + occasional) for each in timeline.rehearsals}


def _beside_input_ms(timeline: Timeline) -> tuple[float, float]:
    """Mean and median of a steady step without its data stage."""
    steps, first = timeline.steps, timeline.steady_from
    data = steps.stages.get(Stage.DATA) or [0] * len(steps)
    rest = sorted(wall - waited for wall, waited in zip(steps.wall[first:], data[first:], strict=True))
    return sum(rest) / len(rest) / NS_PER_MS, at(rest, 0.5) / NS_PER_MS


def _shared(timeline: Timeline) -> bool:
    """Whether others used the cores of the job in the window."""
    used = [gauge.foreign_cpu / max(1, len(gauge.cores)) for gauge in timeline.gauges]
    return bool(used) and fmean(used) > FOREIGN


def _overlaps(timeline: Timeline) -> bool:
    """Whether workers or a device work beside the training thread, so that its time does not simply add up."""
    devices = timeline.model.devices if timeline.model else ()
    return any(each.num_workers for each in timeline.loaders) or any(device != "cpu" for device in devices)
