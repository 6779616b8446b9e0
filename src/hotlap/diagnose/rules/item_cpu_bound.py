"""Preparing an item takes so much CPU time that the loader cannot keep up.

What it is
    `__getitem__` computes: it decodes, scales, augments or converts. Each sample pays for it, in every
    epoch. Workers only spread that work over the cores, and take those cores from the training itself.
How it is recognised
    Of the exposed time of `data`, the part in which items were on the CPU is at least 2 % of the step and
    at least a third of the data time, so that it is what to act on. Item time in which it was ready to run
    but had no core counts too. Linux counts it; elsewhere, while all cores are busy, it is what is not on the
    CPU, up to three times the CPU time.
What to do
    Mend the line that holds the time: do it once for the whole dataset at set-up, or for a whole batch
    instead of each item, or keep the result in memory. More workers help as long as cores are free.
Evidence
    `item_ms`: wall time of one item
    `item_cpu_ms`: CPU time of one item
    `items`: a step
    `workers`: of the loader
    `cores`: of the host
    `callee`: optional, what the line calls
    `line_share`: optional, of the item samples on that line
"""

from __future__ import annotations

from hotlap.diagnose.inputs import input_of, item_line, line_evidence, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.ports.rule import Rule, Sight

LARGE_PART = 1 / 3  # of the data time: a smaller part is not what binds the loader


class ItemCpuBound(Rule):
    cause = Cause.ITEM_CPU_BOUND
    refines = Cause.INPUT_STARVED
    # A line that can be mended is worth more than a cache around it.
    outranks = frozenset({Cause.REPEATED_WORK, Cause.ITEM_IO_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.cpu < LARGE_PART * seen.data:
            return None
        line = item_line(sight.timeline, seen.loader.num_workers)
        work = seen.load.work
        evidence: Evidence = {
            "item_ms": seen.item_ms,
            "item_cpu_ms": work.cpu_s * 1e3 / max(1.0, work.items),
            "items": work.items * seen.load.batches,
            "workers": seen.loader.num_workers,
            "cores": sight.host.cores,
            **line_evidence(line),
        }
        return finding(self.cause, seen.cpu, evidence, line_place(line, seen.loader.dataset.place))
