"""Keep, drop or undecided, with the gain and the guard's result."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hotlap.facts.diagnosis import Interval
from hotlap.facts.plan import Plan
from hotlap.facts.trial import Figures


class Ruling(StrEnum):
    """What becomes of a setting that was tried."""

    KEEP = "keep"
    DROP = "drop"
    UNDECIDED = "undecided"


class Sameness(StrEnum):
    """Whether the same model is trained; never `same` by default. `same so far` is what one seed cannot deny: the plan
    as a whole is asked in the end."""

    SAME = "same"
    SO_FAR = "same so far"
    DIFFERENT = "different"
    NOT_DECIDED = "not decided"


PASSING = (Sameness.SAME, Sameness.SO_FAR)  # for a search to go on from a plan


@dataclass(frozen=True)
class Guarded:
    """What the guard found, by the numerics class of the settings; `reason` says on what grounds."""

    sameness: Sameness
    numerics: str
    reason: str
    steps: int = 0
    seeds: int = 0


@dataclass(frozen=True)
class Gain:
    """Throughput ratio minus one, with its interval and the trials behind it."""

    value: float
    interval: Interval
    trials: int = 0

    def fault(self) -> str:
        """Why nothing can have gained so; for what was read from a file."""
        return "" if -1.0 < self.value < math.inf else f"a gain of {self.value!r:.60}"

    @property
    def decided(self) -> bool:
        return not self.interval.low <= 0.0 <= self.interval.high


@dataclass(frozen=True)
class KnobVerdict:
    """On one setting. `promise` is what guides promise for the knob, beside which the gain is shown."""

    knob: str
    setting: Any
    ruling: Ruling
    gain: Gain | None = None
    promise: tuple[float, float] | None = None
    guard: Guarded | None = None
    reason: str = ""
    break_even_steps: int | None = None  # until the time for compiling is paid back
    memory: float | None = None  # change of peak memory: 0.5 is half as much again
    beside: Mapping[str, Any] = field(
        default_factory=dict
    )  # settings that came with it, as scale-lr with a batch
    live: bool = False  # measured by an experiment in a running process, not in processes of its own
    bound: float | None = (
        None  # exposed time that it attacks, as a share of the step: the most that it could save
    )


@dataclass(frozen=True)
class Tuning:
    """All that `tune` found out: what was tried in its order, and the plan that came of it."""

    baseline: Figures
    tuned: Figures | None
    plan: Plan
    gain: Gain | None
    guard: Guarded | None
    verdicts: tuple[KnobVerdict, ...] = ()
    alone: Mapping[str, Gain] = field(default_factory=dict)  # each accepted setting by itself
    trials: int = 0
    seconds: float = 0.0
    ended: str = ""  # why the search ended


# What a training process computed in its first steps, as far as two runs can be compared by it.


@dataclass(frozen=True)
class Witness:
    """One run. Digests are of bits; `sketch` is a projection of all parameters onto a few numbers, one row a step.

    `start` is the sketch before the first step, so that what the steps have changed can be told from the model.
    """

    seed: int
    losses: tuple[float, ...]  # one for each backward
    samples: tuple[int, ...]  # that each backward has seen, 0 where they could not be counted
    batches: tuple[str, ...]  # digest of each batch, in the order in which the script got them
    start: tuple[float, ...]
    sketches: tuple[tuple[float, ...], ...]
    parameters: str  # digest after the last step
    generators: str  # digest of the random number generators after the last step
    steps: int
    epochs: int = 1  # that it trained in, cut short
    breaches: tuple[str, ...] = ()  # what the audit of the data found
    repeated: float = 0.0  # share of the samples that had come before in the same epoch
    answers: tuple[float, ...] = ()  # losses of the reference batches, after the last step
    unasked: str = ""  # why there are none though they were wanted
