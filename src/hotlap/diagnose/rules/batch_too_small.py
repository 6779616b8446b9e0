"""The batch is so small that a step mostly pays fixed costs.

What it is
    Starting operators, the optimizer and the loop cost the same for one sample as for a hundred. With a
    small batch that is most of the step, and twice the batch takes hardly longer.
How it is recognised
    Hypothesis, which an experiment with larger batches of the script's own items must confirm: a quarter of the
    memory is free. The time attacked is forward, backward and the optimizer's. Where starting the operators of a pass
    takes much of it although a pass holds more than 32 samples, or because the model loops, the cause is launch-bound.
What to do
    Raise the batch size while throughput in samples a second rises, and scale the learning rate with it.
    Compare samples, never iterations.
Evidence
    `batch`: samples in one pass
    `free_mib`: memory that is free
"""

from __future__ import annotations

from hotlap.cost.reading import free_bytes, training_loader
from hotlap.diagnose.compute import (
    SMALL_BATCH,
    compute_share,
    device_memory,
    dispatch_of,
    loops,
    samples_per_pass,
)
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage
from hotlap.ports.rule import Rule, Sight

NOTICED = 0.3
FREE = 0.25


class BatchTooSmall(Rule):
    cause = Cause.BATCH_TOO_SMALL
    outranks = frozenset({Cause.LAUNCH_BOUND, Cause.UNCOMPILED})
    hypothesis = True

    def examine(self, sight: Sight) -> Finding | None:
        batch, free = samples_per_pass(sight.timeline), _free(sight)
        if batch is None or free is None or free[0] < FREE * free[1] or _launches(sight, batch):
            return None
        share = compute_share(sight) + sight.summary.share(Stage.OPTIMIZER)
        evidence: Evidence = {"batch": batch, "free_mib": free[0] / 2**20}
        found = training_loader(sight.timeline)
        return finding(self.cause, share, evidence, found[1].place if found else None)


def _launches(sight: Sight, batch: float) -> bool:
    """Whether starting operators explains the time although the batch is not small."""
    dispatch = dispatch_of(sight)
    if dispatch is None or dispatch.fixed < NOTICED or sight.timeline.on_accelerator:
        return False
    return loops(sight.timeline) or batch > SMALL_BATCH


def _free(sight: Sight) -> tuple[float, float] | None:
    """Bytes that are free, and bytes in all, where the model computes; None where the device does not say."""
    if not sight.timeline.on_accelerator:
        return free_bytes(sight.timeline, sight.host), sight.host.ram_bytes
    used = [gauge.cuda_reserved for gauge in sight.timeline.gauges if gauge.cuda_reserved is not None]
    limit = device_memory(sight.timeline, sight.host)
    if not used or limit is None:
        return None
    return limit - max(used), limit
