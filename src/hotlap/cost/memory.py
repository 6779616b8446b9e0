"""Whether a dataset's items would fit into memory."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.facts.host import Host
from hotlap.facts.timeline import Timeline

MARGIN = (
    0.25  # of the free memory stays free: the page cache, the workers and a larger validation batch need some
)
ITEM_OVERHEAD = 512  # bytes of a Python container and tensor headers around each item


@dataclass(frozen=True)
class Fit:
    """What is needed and what is free, in bytes."""

    needed: int
    free: int

    @property
    def fits(self) -> bool:
        return self.needed <= self.free * (1.0 - MARGIN)


def fit(items: int, item_bytes: int, free: int) -> Fit:
    """All items at once against the memory that is free."""
    return Fit(items * (item_bytes + ITEM_OVERHEAD), free)


def free_bytes(timeline: Timeline, host: Host) -> int:
    """Memory that is left while the job runs.

    The least that a gauge saw; where none looked, what the host had before the job started, less the job's
    own peak.
    """
    seen = [gauge.ram_free for gauge in timeline.gauges if gauge.ram_free is not None]
    if seen:
        return min(seen)
    peak = max((gauge.tree_rss or gauge.rss for gauge in timeline.gauges), default=0)
    return max(0, host.ram_free_bytes - peak)
