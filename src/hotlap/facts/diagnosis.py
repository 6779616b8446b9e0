"""A cause with its share, evidence and place; all findings, ranked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hotlap.facts.timeline import SourceLine

HEALTHY = "healthy"


class Cause(StrEnum):
    """A named reason for exposed time."""

    INPUT_STARVED = "input-starved"
    ITEM_CPU_BOUND = "item-cpu-bound"
    ITEM_IO_BOUND = "item-io-bound"
    COLLATE_BOUND = "collate-bound"
    WORKERS_TOO_FEW = "workers-too-few"
    WORKERS_TOO_MANY = "workers-too-many"
    WORKERS_RESTART = "workers-restart"
    PREFETCH_SHALLOW = "prefetch-shallow"
    REPEATED_WORK = "repeated-work"
    TRANSFER_EXPOSED = "transfer-exposed"
    HOST_SYNC = "host-sync"
    ELEMENT_LOOP = "element-loop"
    LAUNCH_BOUND = "launch-bound"
    GATHER_HEAVY = "gather-heavy"
    BATCH_TOO_SMALL = "batch-too-small"
    UNCOMPILED = "uncompiled"
    RECOMPILING = "recompiling"
    PRECISION_UNUSED = "precision-unused"
    PRECISION_INEFFECTIVE = "precision-ineffective"
    OPTIMIZER_UNFUSED = "optimizer-unfused"
    PADDING_WASTE = "padding-waste"
    FLOAT64_COMPUTE = "float64-compute"
    DEBUG_MODE_ON = "debug-mode-on"
    LOGGING_HEAVY = "logging-heavy"
    VALIDATION_HEAVY = "validation-heavy"
    CHECKPOINT_HEAVY = "checkpoint-heavy"
    MONITORING_HEAVY = "monitoring-heavy"
    GC_PAUSES = "gc-pauses"
    MEMORY_CHURN = "memory-churn"
    STEP_OUTLIERS = "step-outliers"
    MEMORY_GROWTH = "memory-growth"
    MEMORY_HEADROOM = "memory-headroom"
    STRAGGLER_RANK = "straggler-rank"
    COMM_EXPOSED = "comm-exposed"


class Basis(StrEnum):
    """What a finding rests on: an experiment that confirmed it, or time measured on the critical path."""

    EXPERIMENT = "experiment"
    EXPOSED = "exposed"


class Severity(StrEnum):
    """How much a finding matters; `note` never makes a job unhealthy."""

    CRITICAL = "critical"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True)
class Interval:
    """Where a quantity lies, at 95 % confidence unless said otherwise."""

    low: float
    high: float


@dataclass(frozen=True)
class Fix:
    """A setting that relieves a cause; gains are throughput ratios minus one: 0.5 is half again.

    `measured_gain` comes from an experiment on this job, and then `interval` is its own. `predicted_gain` is of runs
    that were stored before there were experiments.
    """

    knob: str
    setting: str
    predicted_gain: float | None = None
    interval: Interval | None = None
    measured_gain: float | None = None


@dataclass(frozen=True)
class Finding:
    """One cause. `share` is the part of a steady step that it explains; `evidence` the figures behind it.

    By `basis`, the share is what the best experiment saved, or exposed time: the most that could be saved.
    `evidence` fills the sentences of report/locale, so its keys are part of a rule's contract.
    """

    cause: Cause
    severity: Severity
    share: float
    evidence: Mapping[str, float | str] = field(default_factory=dict)
    where: SourceLine | None = None
    fixes: tuple[Fix, ...] = ()
    basis: Basis = Basis.EXPOSED


@dataclass(frozen=True)
class Diagnosis:
    """All findings, the one to act on first. `untested` are hypotheses whose experiment was not made: no findings."""

    findings: tuple[Finding, ...] = ()
    untested: tuple[Finding, ...] = ()

    @property
    def verdict(self) -> str:
        """The cause to act on, or `healthy` where there are at most notes."""
        if self.findings and self.findings[0].severity is not Severity.NOTE:
            return self.findings[0].cause.value
        return HEALTHY
