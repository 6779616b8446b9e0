"""Putting items together into a batch takes longer than fetching them.

What it is
    `collate_fn` pads, converts or copies item by item, often in Python or from lists. It runs once a batch,
    in the worker (or in the training process without workers).
How it is recognised
    Of the exposed time of `data`, the part in which batches were collated is at least 2 % of the step and
    at least a third of the data time.
What to do
    Allocate the batch once and copy into it, stack arrays instead of lists, convert the dtype once for the
    batch, or fetch a whole batch at once with `__getitems__`.
Evidence
    `collate_ms`: a batch
    `fetch_ms`: a batch
    `workers`: of the loader
    `callee`: optional, what the line calls
    `line_share`: optional, of the data samples on that line
"""

from __future__ import annotations

from hotlap.diagnose.inputs import collate_line, input_of, line_evidence, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

LARGE_PART = 1 / 3  # of the data time: a smaller part is not what binds the loader


class CollateBound(Rule):
    cause = Cause.COLLATE_BOUND
    refines = Cause.INPUT_STARVED

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.collate < LARGE_PART * seen.data:
            return None
        line = collate_line(sight.timeline, seen.loader, mostly=seen.collate >= seen.data / 2)
        work = seen.load.work
        evidence: Evidence = {
            "collate_ms": work.collate_s * 1e3,
            "fetch_ms": work.fetch_s * 1e3,
            "workers": seen.loader.num_workers,
            **line_evidence(line),
        }
        return finding(self.cause, seen.collate, evidence, line_place(line, seen.loader.place))
