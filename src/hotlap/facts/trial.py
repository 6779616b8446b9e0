"""One isolated run of a job under one plan, and what it brought."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hotlap.facts.plan import Plan
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.units import NS_PER_S

_MOST_TRIALS = 1_000_000  # in one folder


class Status(StrEnum):
    """How a trial ended. A dead or hung one is a result, not an error."""

    DONE = "done"
    DEAD = "dead"
    HUNG = "hung"
    STEPLESS = "stepless"  # it ended without a steady step
    INTERRUPTED = "interrupted"
    SCREENED = "screened"  # in ledgers from before there were experiments


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

    def fault(self) -> str:
        """Why no trial can have brought them; for what was read from a file."""
        if not is_rate(self.throughput):
            return f"a throughput of {self.throughput!r:.60}"
        if self.rates and not {self.counts, usual_of(self.rates)} <= self.rates.keys():
            return f"a throughput in {self.counts:.20}, which it holds no rate of"
        numbers = (self.step_ms, self.data_ms, self.compile_s, self.startup_s, self.memory_bytes or 0)
        return "" if all(0.0 <= each < math.inf for each in numbers) else "a time or a size that is none"


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

    def fault(self) -> str:
        """Why there was no such trial; for what was read from a file."""
        if not 0 < self.number < _MOST_TRIALS:
            return f"a trial of number {self.number}"
        known = 0.0 <= self.seconds < math.inf and all(math.isfinite(each) for each in self.stages.values())
        return "" if known else "a time that is none"


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


# Figures of several trials in one count, so that they can be held against each other.


OTHER_TOKENS = 2.0  # times as many in a sample: another script counts something else, or cuts its sequences

Group = Sequence[Figures]


def knows(figures: Figures, counts: str) -> bool:
    return counts == figures.counts or counts in figures.rates


def counted(figures: Figures, counts: str) -> Figures:
    """With the throughput in this count, which must be known."""
    if counts == figures.counts:
        return figures
    return replace(figures, throughput=figures.rates[counts].per_s, counts=counts)


def without_tokens(figures: Figures) -> Figures:
    """Of a run whose samples were made shorter: tokens would be no measure of it."""
    rates = {name: rate for name, rate in figures.rates.items() if name != TOKENS}
    return replace(counted(figures, usual_of(rates)), rates=rates)


def count_for(groups: Sequence[Group], *, one_job: bool = True) -> str | None:
    """The count that all figures can be told in: tokens where half of them or more are steadier so, else their own
    where it is the same, else samples, else steps. One run alone may have had a noisy neighbour.

    Tokens of two jobs need not be the same thing (letters and words, sound and its features): where a sample of one
    holds twice as many, samples are counted. None where nothing was counted in all of them.
    """
    every = [each for group in groups for each in group]
    own = {each.counts for each in every}
    doubtful = TOKENS in own and not one_job and _other_tokens(groups)
    votes = sum(steadiest(each.rates) == TOKENS for each in every if each.rates) if one_job else 0
    steadier = votes > 0 and 2 * votes >= len(every)
    agreed = own if len(own) == 1 and not doubtful else set()
    order = [*({TOKENS} if steadier else agreed), SAMPLES, STEPS]
    return next((counts for counts in order if all(knows(each, counts) for each in every)), None)


def alike(*groups: Group, one_job: bool = True) -> list[list[Figures]]:
    """All in one count; as they are where there is none."""
    counts = count_for(groups, one_job=one_job)
    return [[counted(each, counts) if counts else each for each in group] for group in groups]


def worths(goal: Goal, *groups: Group) -> list[list[float]]:
    """What each is worth by the goal, all in one count."""
    return [[worth(each, goal) for each in group] for group in alike(*groups)]


def tokens_per_sample(figures: Figures) -> float | None:
    tokens, samples = figures.rates.get(TOKENS), figures.rates.get(SAMPLES)
    return tokens.per_s / samples.per_s if tokens and samples else None


def _other_tokens(groups: Sequence[Group]) -> bool:
    sizes = [[size for each in group if (size := tokens_per_sample(each))] for group in groups]
    means = [sum(group) / len(group) for group in sizes if group]
    return bool(means) and max(means) > OTHER_TOKENS * min(means)


# Throughput by what is counted, and by which count it is steadiest.


SAMPLES, TOKENS, STEPS = "samples", "tokens", "steps"
STEADIER = 0.9  # of the scatter by samples: tokens that are hardly steadier are not worth another word


@dataclass(frozen=True)
class Rate:
    """`scatter` is the relative standard error, by how single steps scatter around it; None for a single step."""

    per_s: float
    scatter: float | None

    def fault(self) -> str:
        """Why it is no rate; for what was read from a file."""
        return "" if is_rate(self.per_s) else f"{self.per_s!r:.60} is no rate"


def rates_of(timeline: Timeline) -> dict[str, Rate]:
    """Of the steady steps, by what was counted in them. Steps always were."""
    steps, first = timeline.steps, timeline.steady_from
    walls = steps.wall[first:]
    columns = {SAMPLES: steps.samples[first:], TOKENS: steps.tokens[first:], STEPS: [1] * len(walls)}
    found = {name: _rate(counts, walls) for name, counts in columns.items()}
    return {name: rate for name, rate in found.items() if rate is not None}


def steadiest(rates: Mapping[str, Rate]) -> str:
    """Samples, or tokens where the steps scatter less by them; steps where batches show no samples."""
    usual = usual_of(rates)
    by_usual, by_tokens = rates[usual].scatter, rates[TOKENS].scatter if TOKENS in rates else None
    if by_usual is None or by_tokens is None:
        return usual
    return TOKENS if by_tokens < STEADIER * by_usual else usual


def is_rate(number: float) -> bool:
    """Of something that was made."""
    return 0.0 < number < math.inf


def usual_of(rates: Mapping[str, Rate]) -> str:
    """What is counted unless something speaks against it."""
    return SAMPLES if SAMPLES in rates else STEPS


def _rate(counts: Sequence[int], walls: Sequence[int]) -> Rate | None:
    """Over the steps where it was counted: what was not seen is not nothing."""
    seen = [(count, wall) for count, wall in zip(counts, walls, strict=True) if count >= 0]
    total, elapsed = sum(count for count, _ in seen), sum(wall for _, wall in seen)
    if total <= 0 or elapsed <= 0:
        return None
    per_ns, number = total / elapsed, len(seen)
    squares = sum((count - per_ns * wall) ** 2 for count, wall in seen)
    scatter = math.sqrt(squares * number / (number - 1)) / total if number > 1 else None
    return Rate(per_ns * NS_PER_S, scatter)
