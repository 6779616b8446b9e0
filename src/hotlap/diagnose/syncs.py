"""Synchronisations of a step: the time inside the calls, and lines that do little else."""

from __future__ import annotations

from hotlap.facts.summary import Summary
from hotlap.facts.timeline import HotLine, Stage, SyncPoint, Timeline

APART = frozenset({Stage.VALIDATE, Stage.CHECKPOINT})  # to read values is what these stages are for
LOOPED = 8.0  # synchronisations a step on one line: a loop over elements, so that the whole line is to blame


def in_training(timeline: Timeline) -> list[SyncPoint]:
    """The synchronisations that a training step makes."""
    return [point for point in timeline.syncs if point.stage not in APART and point.count > 0]


def steps_run(timeline: Timeline) -> int:
    """All steps: those thinned out of the record synchronised too."""
    return max(1, len(timeline.steps) + timeline.probe.dropped_steps)


def is_looped(line: HotLine, timeline: Timeline) -> bool:
    """Whether the line synchronises again and again within a step."""
    here = (line.place.file, line.place.line)
    count = sum(
        point.count for point in in_training(timeline) if (point.place.file, point.place.line) == here
    )
    return count >= LOOPED * steps_run(timeline)


def looped_share(timeline: Timeline, summary: Summary) -> float:
    """The part of the step on such lines: fetching an element costs more than reading it."""
    return sum(
        line.share * summary.share(line.stage)
        for line in timeline.lines
        if line.role == "main" and line.stage not in APART and is_looped(line, timeline)
    )
