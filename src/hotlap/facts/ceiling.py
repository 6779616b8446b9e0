"""What free input would bring: steps on a replayed batch, set against the steady steps before them."""

from __future__ import annotations

from dataclasses import dataclass

from hotlap.facts.summary import Summary, at
from hotlap.facts.timeline import Stage, Timeline
from hotlap.units import NS_PER_MS

# Slower without input than with it by more than this: something else took the machine meanwhile.
DISTURBED = 0.05


@dataclass(frozen=True)
class FreeInput:
    """A mean step whose input costs nothing, and the gain in throughput: the most that any fix of input can bring."""

    step_ms: float
    gain: float
    low: float
    high: float

    @property
    def disturbed(self) -> bool:
        return self.gain <= -DISTURBED


def free_input(timeline: Timeline, summary: Summary) -> FreeInput | None:
    """None where it was not measured."""
    if timeline.free_input_s is None or summary.step_ms is None:
        return None
    now, unmeasured = summary.step_ms, _stalls_ms(timeline)
    middle, low, high = (
        seconds * 1e3 + unmeasured
        for seconds in (timeline.free_input_s, *(timeline.free_input_range_s or (timeline.free_input_s,) * 2))
    )
    return FreeInput(middle, now / middle - 1.0, now / high - 1.0, now / low - 1.0)


def _stalls_ms(timeline: Timeline) -> float:
    """Free input is a median of few steps. The stalls and the occasional stages of the rest of a step stay."""
    steps, first = timeline.steps, timeline.steady_from
    data = steps.stages.get(Stage.DATA) or [0] * len(steps)
    rest = sorted(wall - waited for wall, waited in zip(steps.wall[first:], data[first:], strict=True))
    return max(0.0, sum(rest) / len(rest) - at(rest, 0.5)) / NS_PER_MS
