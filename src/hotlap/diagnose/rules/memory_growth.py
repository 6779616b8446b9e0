"""Memory grows with every step.

What it is
    Something is kept that should go: losses in a list with their graphs (`losses.append(loss)` instead of
    `loss.item()`), outputs of validation, a cache without bound. In the end the run is killed, often hours
    later.
How it is recognised
    Over the steady state, memory grows along a line (Theil-Sen): by more than 1 % in all, without shrinking
    between nine of ten pairs of looks, and in each third at least half as fast as over the whole, so that
    what an allocator or a cache takes up at the start is no growth. During the first epoch, growth up to the
    size of the dataset is taken for such a cache. Severity goes by the time until memory is full: within an
    hour critical, within a day a warning. Growth costs no time, so the share is 0.
What to do
    Keep numbers, not tensors: `.item()` or `.detach()`; delete outputs after use; bound caches.
Evidence
    `memory`: host or gpu
    `mib_per_step`: growth
    `from_mib`: at the start of the steady state
    `to_mib`: at its end
    `hours_left`: optional, until it is full
    `kept`: optional, what is kept
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hotlap.cost.reading import free_bytes, training_loader
from hotlap.facts.diagnosis import Cause, Finding, Severity
from hotlap.facts.timeline import Gauge, Timeline
from hotlap.ports.rule import Rule, Sight
from hotlap.stats.robust import median, slope, thin
from hotlap.units import NS_PER_S

LOOKS = 12  # gauges: fewer do not make a line
SPAN_S = 3.0  # over which they are spread: in the first seconds allocators and caches fill
LEAST_GROWTH, NEARLY_ALL, STILL = 0.01, 0.9, 0.5
HOUR, DAY = 1.0, 24.0
MIB = 2**20


@dataclass(frozen=True)
class _Growth:
    memory: str
    bytes_per_s: float
    first: float
    last: float
    hours_left: float | None


class MemoryGrowth(Rule):
    cause = Cause.MEMORY_GROWTH

    def examine(self, sight: Sight) -> Finding | None:
        gauges = _steady(sight.timeline)
        if not sight.summary.steps_per_s or len(gauges) < LOOKS or _span_s(gauges) < SPAN_S:
            return None
        growing = [each for each in (_host(sight, gauges), _gpu(sight, gauges)) if each]
        if not growing:
            return None
        worst = min(
            growing, key=lambda each: each.hours_left if each.hours_left is not None else float("inf")
        )
        evidence: dict[str, float | str] = {
            "memory": worst.memory,
            "mib_per_step": worst.bytes_per_s / sight.summary.steps_per_s / MIB,
            "from_mib": worst.first / MIB,
            "to_mib": worst.last / MIB,
        }
        if worst.hours_left is not None:
            evidence["hours_left"] = worst.hours_left
        if _keeps_graphs(gauges):
            evidence["kept"] = "autograd graphs"
        return Finding(self.cause, _severity(worst.hours_left), 0.0, evidence)


def _span_s(gauges: Sequence[Gauge]) -> float:
    return (gauges[-1].t - gauges[0].t) / NS_PER_S


def _severity(hours_left: float | None) -> Severity:
    if hours_left is None or hours_left > DAY:
        return Severity.NOTE
    return Severity.CRITICAL if hours_left <= HOUR else Severity.WARNING


def _steady(timeline: Timeline) -> Sequence[Gauge]:
    starts, first = timeline.steps.start, timeline.steady_from
    if first >= len(starts):
        return ()
    return thin([gauge for gauge in timeline.gauges if gauge.t >= starts[first]])


def _host(sight: Sight, gauges: Sequence[Gauge]) -> _Growth | None:
    line = _line([gauge.t for gauge in gauges], [gauge.rss for gauge in gauges])
    if line is None or _fills_a_cache(sight.timeline, line[2] - line[1]):
        return None
    free = free_bytes(sight.timeline, sight.host)
    return _Growth("host", *line, free / line[0] / 3600)


def _gpu(sight: Sight, gauges: Sequence[Gauge]) -> _Growth | None:
    seen = [(gauge.t, gauge.cuda_allocated) for gauge in gauges if gauge.cuda_allocated is not None]
    line = _line([t for t, _ in seen], [allocated for _, allocated in seen])
    if line is None:
        return None
    left = sight.host.gpus[0].memory_bytes - line[2] if sight.host.gpus else None
    return _Growth("gpu", *line, None if left is None else left / line[0] / 3600)


def _line(times: Sequence[int], sizes: Sequence[int]) -> tuple[float, float, float] | None:
    """Bytes a second, first and last size; None where it does not grow along a line."""
    if len(times) < LOOKS:
        return None
    rate = slope(times, sizes)
    lift = rate * (times[-1] - times[0])
    grows = lift > LEAST_GROWTH * median(sizes) and slope(times, sizes, 1 - NEARLY_ALL) >= 0
    if not grows or not _in_each_third(times, sizes, STILL * rate):
        return None
    return rate * NS_PER_S, float(sizes[0]), float(sizes[-1])


def _in_each_third(times: Sequence[int], sizes: Sequence[int], rate: float) -> bool:
    """Memory that an allocator or a cache takes up at the start levels off; what is kept for ever does not."""
    bounds = [len(times) * third // 3 for third in range(4)]
    return all(slope(times[low:high], sizes[low:high]) >= rate for low, high in pairwise(bounds))


def _fills_a_cache(timeline: Timeline, grown: float) -> bool:
    found = training_loader(timeline)
    if found is None or found[1].epochs > 1:
        return False
    dataset = found[1].dataset
    return grown <= (dataset.length or 0) * (dataset.item_bytes or 0)


def _keeps_graphs(gauges: Sequence[Gauge]) -> bool:
    seen = [(gauge.t, gauge.graph_tensors) for gauge in gauges if gauge.graph_tensors is not None]
    return _line([t for t, _ in seen], [count for _, count in seen]) is not None
