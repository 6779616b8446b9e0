"""The batch is so small that a step mostly pays fixed costs.

What it is
    Starting operators, the optimizer and the loop cost the same for one sample as for a hundred. With a
    small batch that is most of the step, and twice the batch takes hardly longer.
How it is recognised
    At least 30 % of forward and backward does not grow with the batch. Where batches of unlike sizes (the
    last one of an epoch, say) or sequences of unlike lengths were seen that part is measured: the time that
    is left when the samples, or the positions of sequences, are taken away. Else it is reckoned from the calls of leaf
    modules (25 us each), and only for passes of at most 32 samples through a model that does not loop over
    its modules. A quarter of the memory must be free. The share is what eight times the batch would save, in
    the optimizer as well.
What to do
    Raise the batch size while throughput in samples a second rises, and scale the learning rate with it.
    Compare samples, never iterations.
Evidence
    `batch`: samples in one pass
    `fixed_share`: of a step that does not grow with the batch
    `free_mib`: memory that is free
"""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.cost.memory import free_bytes
from hotlap.cost.reading import training_loader
from hotlap.diagnose.compute import SMALL_BATCH, compute_share, dispatch_of, loops, on_cuda, samples_per_pass
from hotlap.diagnose.severity import Evidence, finding
from hotlap.facts.diagnosis import Cause, Finding
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.quantile import median

NOTICED = 0.3
FREE = 0.25
LARGER = 8  # times the batch: the sizes that a user would try
UNLIKE = 0.7  # of the usual batch or less: far enough apart for a line through two points
SMALLER_STEPS = 3  # one short batch may have met a stall
GROWS = (Stage.TRANSFER, Stage.FORWARD, Stage.BACKWARD)


class BatchTooSmall(Rule):
    cause = Cause.BATCH_TOO_SMALL
    outranks = frozenset({Cause.LAUNCH_BOUND, Cause.UNCOMPILED, Cause.OPTIMIZER_UNFUSED})

    def examine(self, sight: Sight) -> Finding | None:
        batch, free = samples_per_pass(sight.timeline), _free(sight)
        fixed = _fixed(sight, batch) if batch else None
        if fixed is None or fixed < NOTICED or free is None or free[0] < FREE * free[1]:
            return None
        share = fixed * compute_share(sight) + sight.summary.share(Stage.OPTIMIZER)
        evidence: Evidence = {"batch": batch, "fixed_share": share, "free_mib": free[0] / 2**20}
        found = training_loader(sight.timeline)
        return finding(self.cause, share * (1 - 1 / LARGER), evidence, found[1].place if found else None)


def _fixed(sight: Sight, batch: float) -> float | None:
    """The part of forward and backward that does not grow with the batch."""
    part = _measured(sight.timeline)
    return _reckoned(sight, batch) if part is None else part


def _reckoned(sight: Sight, batch: float) -> float | None:
    dispatch, model = dispatch_of(sight), sight.timeline.model
    if dispatch is None or model is None or batch > SMALL_BATCH:
        return None
    return None if loops(model) or on_cuda(sight.timeline) else dispatch.fixed


def _measured(timeline: Timeline) -> float | None:
    """From batches of unlike sizes. Of sequences the positions count: many short ones may take as long as a few."""
    steps, first = timeline.steps, timeline.steady_from
    columns = [steps.stages[stage][first:] for stage in GROWS if stage in steps.stages]
    times = [sum(row) for row in zip(*columns, strict=True)]
    positions = [real + empty for real, empty in zip(steps.tokens[first:], steps.padded[first:], strict=True)]
    return _at_nothing(positions if any(positions) else steps.samples[first:], times)


def _at_nothing(sizes: Sequence[int], times: Sequence[float]) -> float | None:
    """A line through the usual and the smaller ones: what is left of a mean step's time where it meets no size."""
    points = [(size, time) for size, time in zip(sizes, times, strict=True) if size > 0]
    if not points:
        return None
    usual = median([size for size, _ in points])
    small = [point for point in points if point[0] <= UNLIKE * usual]
    large = [point for point in points if point[0] >= usual]
    if len(small) < SMALLER_STEPS or len(large) < SMALLER_STEPS:
        return None
    (low, quick), (high, slow) = _middle(small), _middle(large)
    each = (slow - quick) / (high - low)
    growing = each * sum(size for size, _ in points) / len(points)
    whole = slow - each * high + growing
    return min(1.0, max(0.0, 1.0 - growing / whole)) if whole > 0 else None


def _middle(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    return median([size for size, _ in points]), median([time for _, time in points])


def _free(sight: Sight) -> tuple[float, float] | None:
    """Bytes that are free, and bytes in all, where the model computes; None where the GPU was not asked."""
    if not on_cuda(sight.timeline):
        return free_bytes(sight.timeline, sight.host), sight.host.ram_bytes
    used = [gauge.cuda_reserved for gauge in sight.timeline.gauges if gauge.cuda_reserved is not None]
    if not used or not sight.host.gpus:
        return None
    limit = sight.host.gpus[0].memory_bytes
    return limit - max(used), limit
