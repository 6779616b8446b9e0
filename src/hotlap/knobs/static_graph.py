"""Tell DistributedDataParallel that every step uses the same parameters.

What it does
    Builds DistributedDataParallel with `static_graph=True`: which parameters take part is found out once, and
    gradients are sent in the order in which they really arrive.
When it helps
    Communication is exposed, or `find_unused_parameters` searches the graph in every step.
What it costs
    A model whose parameters take turns (early exits, experts chosen by data) raises an error in its second step:
    leave it off there.
Numerics
    Buckets are filled in another order: rounding.
"""

from __future__ import annotations

from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob, NotMineError, Numerics
from hotlap.ports.target import Distributed, Seam, Undo
from hotlap.ports.values import Flag


class StaticGraph(Knob):
    id = "static-graph"
    relieves = frozenset({Cause.COMM_EXPOSED})
    seam = Seam.DISTRIBUTED
    numerics = Numerics.ROUNDING
    values = Flag()
    promise = (0.0, 0.05)

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if timeline.world > 1 else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        seconds = summarise(timeline).seconds
        return min(1.0, (timeline.comm_s or 0.0) / seconds) if seconds else 0.0

    def apply(self, target: Any, setting: bool) -> Undo:
        if not isinstance(target, Distributed):
            raise NotMineError
        before = dict(target.arguments)
        target.arguments["static_graph"] = setting
        if setting:
            target.arguments.pop("find_unused_parameters", None)  # a static graph finds them by itself

        def undo() -> None:
            target.arguments.clear()
            target.arguments.update(before)

        return undo
