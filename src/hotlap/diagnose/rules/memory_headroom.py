"""Hardly any memory is left.

What it is
    The run fits, but a longer sequence, a larger validation batch or one more worker would end it. Before
    that the machine drops its page cache, so that files are read from the disk again, or the GPU's
    allocator frees and asks again.
How it is recognised
    At the tightest moment less than 10 % was left: a warning; less than 3 %: critical. Of the machine's
    memory; of the GPU's, by what is allocated rather than reserved; of /dev/shm, by the batches that
    workers may hold in it. The share is 0: it costs no time yet.
What to do
    Lower the batch size, the number of workers or the prefetch factor; checkpoint activations; enlarge
    /dev/shm (`docker run --shm-size`).
Evidence
    `memory`: host, gpu or shm
    `used_mib`: at the tightest moment
    `limit_mib`: in all
    `left_share`: of the limit
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.compute import device_memory
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.ports.rule import Rule, Sight

WARNING_BELOW, CRITICAL_BELOW = 0.10, 0.03


class MemoryHeadroom(Rule):
    cause = Cause.MEMORY_HEADROOM

    def examine(self, sight: Sight) -> Finding | None:
        looked = [each for each in _uses(sight) if each[2] > 0]
        if not looked:
            return None
        memory, used, limit = max(looked, key=lambda each: each[1] / each[2])
        left = max(0.0, 1.0 - used / limit)
        if left >= WARNING_BELOW:
            return None
        evidence: dict[str, float | str] = {
            "memory": memory,
            "used_mib": used / 2**20,
            "limit_mib": limit / 2**20,
            "left_share": left,
        }
        severity = Severity.CRITICAL if left < CRITICAL_BELOW else Severity.WARNING
        return Finding(self.cause, severity, 0.0, evidence)


def _uses(sight: Sight) -> Iterator[tuple[str, float, float]]:
    host, gauges = sight.host, sight.timeline.gauges
    free = [gauge.ram_free for gauge in gauges if gauge.ram_free is not None]
    rss = [gauge.rss for gauge in gauges]
    if free:
        yield "host", host.ram_bytes - min(free), host.ram_bytes
    elif rss:
        yield "host", max(rss), host.ram_bytes
    allocated = [gauge.cuda_allocated for gauge in gauges if gauge.cuda_allocated is not None]
    limit = device_memory(sight.timeline, host)
    if allocated and limit:
        yield "gpu", max(allocated), limit
    if host.shm_bytes and host.shm_free_bytes is not None and host.system == "Linux":
        yield "shm", host.shm_bytes - host.shm_free_bytes + _in_queues(sight), host.shm_bytes


def _in_queues(sight: Sight) -> float:
    """Bytes of the batches that workers may have ready."""
    return sum(
        loader.num_workers * (loader.prefetch_factor or 2) * (loader.batch_bytes or 0)
        for loader in sight.timeline.loaders
    )
