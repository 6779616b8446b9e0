"""Stages that come now and then: their share of the step, how often, and what each occurrence takes."""

from __future__ import annotations

from hotlap.diagnose.inputs import line_place, top_line
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Cadence, Stage
from hotlap.ports.rule import Sight


def occasional(sight: Sight, cause: Cause, stage: Stage) -> Finding | None:
    """The finding of a stage that takes a share of the run although it trains nothing."""
    seen = [each for each in sight.timeline.cadences if each.stage is stage and each.count > 0]
    rhythm = max(seen, key=lambda each: each.seconds) if seen else _from_steps(sight, stage)
    if rhythm is None:
        return None
    evidence: Evidence = {
        "stage_ms": sight.summary.ms(stage),
        "each_ms": rhythm.seconds * 1e3 / rhythm.count,
        "count": rhythm.count,
        "every": rhythm.every_steps,
    }
    where = rhythm.place or line_place(top_line(sight.timeline, stage), None)
    return finding(cause, sight.summary.share(stage), evidence, where)


def _from_steps(sight: Sight, stage: Stage) -> Cadence | None:
    """Where nobody counted occurrences, each step that held some of the stage is one."""
    column = sight.timeline.steps.stages.get(stage, ())[sight.timeline.steady_from :]
    held = [time for time in column if time > 0]
    if not held:
        return None
    return Cadence(stage, len(held), sum(held) / 1e9, len(column) / len(held))
