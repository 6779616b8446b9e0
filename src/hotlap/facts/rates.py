"""Throughput by what is counted, and by which count it is steadiest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotlap.facts.timeline import Timeline
from hotlap.units import NS_PER_S

SAMPLES, TOKENS, STEPS = "samples", "tokens", "steps"
STEADIER = 0.9  # of the scatter by samples: tokens that are hardly steadier are not worth another word


@dataclass(frozen=True)
class Rate:
    """`scatter` is the relative standard error, by how single steps scatter around it; None for a single step."""

    per_s: float
    scatter: float | None


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
