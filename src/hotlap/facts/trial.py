"""One isolated run of a job under one plan, and what it brought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hotlap.facts.plan import Plan
from hotlap.facts.rates import Rate, rates_of, steadiest, usual_of
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline


class Status(StrEnum):
    """How a trial ended. A dead or hung one is a result, not an error."""

    DONE = "done"
    DEAD = "dead"
    HUNG = "hung"
    STEPLESS = "stepless"  # it ended without a steady step
    INTERRUPTED = "interrupted"
    SCREENED = "screened"  # several settings in turn within one process: each has a verdict, none has figures


class Goal(StrEnum):
    """What a search looks for. `balanced`: twice the memory must bring 41 % more throughput, the root of two."""

    SPEED = "speed"
    BALANCED = "balanced"
    MEMORY = "memory"


@dataclass(frozen=True)
class Figures:
    """The steady state of a trial. `throughput` is in `counts`; `rates` holds every count that was seen."""

    throughput: float
    counts: str  # samples | tokens | steps
    step_ms: float
    data_ms: float  # that a step waits for data
    samples_per_step: float | None
    memory_bytes: int | None  # peak: of the GPU where there is one, else of the processes
    utilisation: float  # share of a step that is not spent waiting for data
    compile_s: float
    startup_s: float
    foreign_cores: float | None  # in use by others meanwhile
    steps: int
    batches_per_step: float | None = None  # several where gradients are accumulated
    gpu_busy: float | None = None  # as the driver counts it, 0 to 1
    rates: Mapping[str, Rate] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """`stood` are the settings that acted, `refused` the reasons of those that did not."""

    number: int
    plan: Plan
    status: Status
    seconds: float
    figures: Figures | None = None
    reason: str = ""
    stood: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, float] = field(default_factory=dict)  # exposed ms a step
    numerics: Mapping[str, str] = field(default_factory=dict)  # what those that acted do to the numbers here


def worth(figures: Figures, goal: Goal = Goal.SPEED) -> float:
    """What a search makes as large as it can. Where memory was not measured, only speed can be told."""
    if goal is Goal.SPEED or not figures.memory_bytes:
        return figures.throughput
    if goal is Goal.MEMORY:
        return 1.0 / figures.memory_bytes
    return figures.throughput / math.sqrt(figures.memory_bytes)


def figures_of(timeline: Timeline, counts: str = "") -> Figures | None:
    """The figures of the rank that sets the pace; None without a steady step.

    `counts` is what others were counted by, where that is decided; what was not seen cannot be counted.
    """
    summary = summarise(timeline)
    if not summary.n or not summary.steps_per_s:
        return None
    rates = rates_of(timeline)
    wanted = counts or steadiest(rates)
    chosen = wanted if wanted in rates else usual_of(rates)
    return Figures(
        throughput=rates[chosen].per_s,
        counts=chosen,
        step_ms=summary.step_ms or 0.0,
        data_ms=summary.ms(Stage.DATA),
        samples_per_step=_samples_per_step(timeline),
        memory_bytes=_memory(timeline),
        utilisation=1.0 - summary.share(Stage.DATA),
        compile_s=timeline.warmup.compile_s,
        startup_s=timeline.warmup.startup_s,
        foreign_cores=_median([gauge.foreign_cpu for gauge in timeline.gauges]),
        steps=summary.n,
        batches_per_step=_mean([each for each in timeline.steps.micro[timeline.steady_from :] if each > 0]),
        gpu_busy=_mean([gauge.gpu_busy for gauge in timeline.gauges if gauge.gpu_busy is not None]),
        rates=rates,
    )


def stages_of(timeline: Timeline) -> dict[str, float]:
    """Exposed milliseconds a step by stage."""
    return {stage.value: each.ms for stage, each in summarise(timeline).stages.items()}


def _samples_per_step(timeline: Timeline) -> float | None:
    """Over the steady steps whose batches showed their size."""
    counted = [count for count in timeline.steps.samples[timeline.steady_from :] if count >= 0]
    return sum(counted) / len(counted) if any(counted) else None


def _memory(timeline: Timeline) -> int | None:
    reserved = [gauge.cuda_reserved for gauge in timeline.gauges if gauge.cuda_reserved is not None]
    resident = [gauge.tree_rss or gauge.rss for gauge in timeline.gauges]
    return max(reserved or resident, default=None)


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _median(values: list[float]) -> float | None:
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else None
