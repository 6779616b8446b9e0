"""Fetching an item waits for something outside the CPU, and the step waits with it.

What it is
    `__getitem__` reads from a disk, a network or a database, or sleeps. The processor is free meanwhile, so
    that more workers than cores are of use, and reading ahead or in larger pieces even more.
How it is recognised
    Of the exposed time of `data`, the part in which items were not on the CPU is at least 2 % of the step
    and at least a third of the data time. Time in which they waited for a core is taken off: as Linux counts
    it, or elsewhere, while all cores are busy, up to three times the CPU time.
What to do
    Keep the items in memory if they fit, pack small files into few large ones, or use more workers: waiting
    items scale with the workers, beyond the number of cores.
Evidence
    `item_ms`: wall time of one item
    `item_wait_ms`: of it not on the CPU
    `items`: a step
    `workers`: of the loader
    `callee`: optional, what the line calls
    `line_share`: optional, of the item samples on that line
"""

from __future__ import annotations

from hotlap.diagnose.inputs import input_of, item_line, line_evidence, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

LARGE_PART = 1 / 3  # of the data time: a smaller part is not what binds the loader


class ItemIoBound(Rule):
    cause = Cause.ITEM_IO_BOUND
    refines = Cause.INPUT_STARVED

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.wait < LARGE_PART * seen.data:
            return None
        line = item_line(sight.timeline, seen.loader)
        work = seen.load.work
        evidence: Evidence = {
            "item_ms": seen.item_ms,
            "item_wait_ms": work.wait_s * 1e3 / max(1.0, work.items),
            "items": work.items * seen.load.batches,
            "workers": seen.loader.num_workers,
            **line_evidence(line),
        }
        return finding(
            self.cause, seen.wait, evidence, line_place(line, seen.loader.dataset.place or seen.loader.place)
        )
