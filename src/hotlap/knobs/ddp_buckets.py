"""Exchange gradients in buckets of another size, without copying them.

What it does
    Builds DistributedDataParallel with `bucket_cap_mb` and `gradient_as_bucket_view=True`: gradients live in the
    buckets that are sent, and a bucket is sent as soon as it is full.
When it helps
    Communication is exposed: smaller buckets start earlier, larger ones pay less latency. The view saves one copy
    and the memory of one set of gradients.
What it costs
    A script that detaches gradients in place (`p.grad.detach_()`) fails with the view.
Numerics
    Sums are taken in another order when buckets change: rounding.
"""

from __future__ import annotations

from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Timeline
from hotlap.ports.knob import Knob, NotMineError, Numerics
from hotlap.ports.target import Distributed, Seam, Undo
from hotlap.ports.values import Whole


class DdpBuckets(Knob):
    id = "ddp-buckets"
    relieves = frozenset({Cause.COMM_EXPOSED})
    seam = Seam.DISTRIBUTED
    numerics = Numerics.ROUNDING
    values = Whole(1, 4096)
    promise = (0.0, 0.1)

    def settings(self, host: Host, timeline: Timeline) -> tuple[int, ...]:
        """Around torch's default of 25 MiB, which is no advice."""
        return (10, 100) if timeline.world > 1 else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        seconds = summarise(timeline).seconds
        return min(1.0, (timeline.comm_s or 0.0) / seconds) if seconds else 0.0

    def apply(self, target: Any, setting: int) -> Undo:
        if not isinstance(target, Distributed):
            raise NotMineError
        before = dict(target.arguments)
        target.arguments.update(bucket_cap_mb=setting, gradient_as_bucket_view=True)

        def undo() -> None:
            target.arguments.clear()
            target.arguments.update(before)

        return undo
