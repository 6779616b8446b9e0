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
    `line_ms`: optional, of each item
    `given`: optional, tensors, arrays and lists that the line was seen with
"""

from __future__ import annotations

import re

from hotlap.diagnose.inputs import input_of, item_line, line_evidence, line_place
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import HotLine
from hotlap.ports.rewrite import Value
from hotlap.ports.rule import Rule, Sight

LARGE_PART = 1 / 3  # of the data time: a smaller part is not what binds the loader


class ItemCpuBound(Rule):
    cause = Cause.ITEM_CPU_BOUND
    refines = Cause.INPUT_STARVED
    outranks = frozenset({Cause.ITEM_IO_BOUND})

    def examine(self, sight: Sight) -> Finding | None:
        seen = input_of(sight)
        if seen is None or seen.cpu < LARGE_PART * seen.data:
            return None
        line = item_line(sight.timeline, seen.loader)
        work = seen.load.work
        evidence: Evidence = {
            "item_ms": seen.item_ms,
            "item_cpu_ms": work.cpu_s * 1e3 / max(1.0, work.items),
            "items": work.items * seen.load.batches,
            "workers": seen.loader.num_workers,
            "cores": sight.host.cores,
            **line_evidence(line),
            **_of_the_line(line, seen.item_ms),
        }
        return finding(
            self.cause, seen.cpu, evidence, line_place(line, seen.loader.dataset.place or seen.loader.place)
        )


def _of_the_line(line: HotLine | None, item_ms: float) -> Evidence:
    """What it takes of each item, and the tensors, arrays and lists that it was seen with."""
    if line is None:
        return {}
    names = set(re.findall(r"[A-Za-z_][\w.]*", line.place.code))
    sized = {name: Value.read(text) for name, text in line.values.items() if name in names}
    given = [
        f"{name}: {' '.join((value.type, *value.rest[:2]))}"
        for name, value in sized.items()
        if value.shape is not None or value.element is not None
    ]
    return {"line_ms": line.share * item_ms} | ({"given": ", ".join(given)} if given else {})
