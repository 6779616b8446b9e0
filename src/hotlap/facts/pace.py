"""Which rank sets the pace.

Ranks that synchronise all show the same wall time: the fast ones wait for the slow one, inside collectives.
So a rank is judged by its own work: its step without the time in collectives, or, where that was not
measured, without the backward pass and the optimizer, in which the waiting happens.
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.facts.summary import Summary, summarise
from hotlap.facts.timeline import Stage, Timeline

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
