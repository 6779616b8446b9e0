"""Python's garbage collector stops the training thread.

What it is
    A full collection walks over all objects that Python keeps. With large datasets held as Python lists or
    dicts that takes tens of milliseconds, each time enough new objects have been made.
How it is recognised
    Collections on the training thread are at least 2 % of the steady time.
What to do
    Call `gc.freeze()` after set-up, collect by hand every so many steps, or keep data in arrays instead of
    lists of objects.
Evidence
    `count`: of collections
    `pause_ms`: mean
    `longest_ms`: the longest
    `every`: optional, steps between two, where they are not more frequent than steps
"""

from __future__ import annotations

from hotlap.diagnose.inputs import top_line
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import SourceLine, Stage
from hotlap.ports.rule import Rule, Sight


class GcPauses(Rule):
    cause = Cause.GC_PAUSES
    outranks = frozenset({Cause.STEP_OUTLIERS, Cause.MONITORING_HEAVY})

    def examine(self, sight: Sight) -> Finding | None:
        pauses, summary = sight.timeline.pauses, sight.summary
        if not pauses.count or not summary.n:
            return None
        evidence: Evidence = {
            "count": pauses.count,
            "pause_ms": pauses.seconds * 1e3 / pauses.count,
            "longest_ms": pauses.longest_s * 1e3,
            "every": summary.n / pauses.count if pauses.count <= summary.n else None,
        }
        share = pauses.seconds / summary.seconds
        return finding(self.cause, share, evidence, _called_from(sight, share))


def _called_from(sight: Sight, share: float) -> SourceLine | None:
    """The line that collects by hand: where pauses come by themselves, no single line holds half of them."""
    line = top_line(sight.timeline, Stage.OTHER)
    held = line.share * sight.summary.share(Stage.OTHER) if line else 0.0
    return line.place if line and held >= share / 2 else None
