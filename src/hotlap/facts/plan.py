"""A set of settings, and for a plan that `tune` wrote, its proof. In a file: plan.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hotlap.facts.diagnosis import Interval

PLAN_SCHEMA = 1


@dataclass(frozen=True)
class Proof:
    """What `tune` measured: the gain (throughput ratio minus one), what the guard said, and where."""

    gain: float
    interval: Interval
    guard: str
    host: str
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """Settings by knob id. Values are as YAML has them; `seams/plan` checks them against the knobs."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    proof: Proof | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)  # of a preset: why each line is there
