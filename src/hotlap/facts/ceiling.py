"""What other input would bring: steps on a replayed batch, or on items made by other workers, after the window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import fmean

from hotlap.facts.summary import Summary, at
from hotlap.facts.timeline import Rehearsal, Stage, Timeline
from hotlap.units import NS_PER_MS

SLOWER = 0.05  # without input than with it
APART = 1.5  # times what a step takes beside its input, where nothing overlaps
WOKEN = 3.0
"""Times as fast as beside its input: a process that pauses for input computes with sleeping threads and cold caches,
1.5 to 2.2 times as long where it was measured. A neighbour that took the machine before and is gone by now looks just
the same, so that is believed only where nobody was seen; else `APART` holds on both sides."""
FOREIGN = 0.2  # of the cores, in use by others: as much as makes a report call the window disturbed


@dataclass(frozen=True)
class FreeInput:
    """A mean step whose input costs nothing, and the gain in throughput: the most that any fix of input can bring.

    `disturbed`: the figures cannot be true of one and the same machine, so something else took it meanwhile.
    """

    step_ms: float
    gain: float
    low: float
    high: float
    disturbed: bool = False


def free_input(timeline: Timeline, summary: Summary) -> FreeInput | None:
    """None where it was not measured."""
    if timeline.free_input_s is None or summary.step_ms is None:
        return None
    mean, median = _beside_input_ms(timeline)
    # Free input is a median of few steps: the stalls and the occasional stages of all others stay.
    stalls = max(0.0, mean - median)
    measured = timeline.free_input_s * 1e3
    low, high = (each * 1e3 for each in timeline.free_input_range_s or (timeline.free_input_s,) * 2)
    gain, least, most = (summary.step_ms / (step + stalls) - 1.0 for step in (measured, high, low))
    fastest = APART if _shared(timeline) else WOKEN
    apart = not _overlaps(timeline) and not median / fastest <= measured <= median * APART
    return FreeInput(measured + stalls, gain, least, most, gain <= -SLOWER or apart)


def rehearsed(timeline: Timeline, summary: Summary) -> dict[int, Rehearsal]:
    """By number of workers. Steps that validate or save are not rehearsed: their time is added as it was."""
    occasional = (summary.ms(Stage.VALIDATE) + summary.ms(Stage.CHECKPOINT)) / 1e3
    return {each.workers: replace(each, step_s=each.step_s + occasional) for each in timeline.rehearsals}


def _beside_input_ms(timeline: Timeline) -> tuple[float, float]:
    """Mean and median of a steady step without its data stage."""
    steps, first = timeline.steps, timeline.steady_from
    data = steps.stages.get(Stage.DATA) or [0] * len(steps)
    rest = sorted(wall - waited for wall, waited in zip(steps.wall[first:], data[first:], strict=True))
    return sum(rest) / len(rest) / NS_PER_MS, at(rest, 0.5) / NS_PER_MS


def _shared(timeline: Timeline) -> bool:
    """Whether others used the cores of the job in the window."""
    used = [gauge.foreign_cpu / max(1, len(gauge.cores)) for gauge in timeline.gauges]
    return bool(used) and fmean(used) > FOREIGN


def _overlaps(timeline: Timeline) -> bool:
    """Whether workers or a device work beside the training thread, so that its time does not simply add up."""
    devices = timeline.model.devices if timeline.model else ()
    return any(each.num_workers for each in timeline.loaders) or any(device != "cpu" for device in devices)
