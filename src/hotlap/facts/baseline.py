"""What a job reached on a machine once, in a file that a repository keeps: the measure for later runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from hotlap.facts.diagnosis import Interval
from hotlap.facts.host import Host
from hotlap.facts.job import masked_line
from hotlap.facts.trial import Figures, count_for, counted, is_rate


@dataclass(frozen=True)
class MachineIdentity:
    """What must be the same for figures of two days to be held against each other."""

    cpu: str
    cores: int
    machine: str
    gpus: tuple[str, ...] = ()

    @property
    def named(self) -> str:
        """In a few words."""
        return f"{self.cores} cores ({self.cpu}), {', '.join(self.gpus) or 'no GPU'}"


@dataclass(frozen=True)
class Baseline:
    """Runs of one command on one machine; `paces` is what the machine itself did beside each of them.

    `rates` are in the count of `figures`; `by_count` holds them in every count that all runs showed. `plan` is the file
    of the plan that they ran under, as it was named; like the script, it may hold other `settings` later.
    """

    command: str
    machine: MachineIdentity
    saved: str  # day
    rates: tuple[float, ...]
    paces: tuple[float, ...]
    figures: Figures  # of the run in the middle
    versions: Mapping[str, str] = field(default_factory=dict)
    by_count: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    plan: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)  # settings that could not act, with the reason

    def fault(self) -> str:
        """Why no runs can have brought it; for what was read from a file."""
        rates = (*self.rates, *self.paces, *(each for found in self.by_count.values() for each in found))
        if not all(map(is_rate, rates)):
            return "a rate that is none"
        lengths = {len(self.rates), *map(len, self.by_count.values())}
        return "" if len(lengths) == 1 else "rates of other runs in each count"

    @property
    def named(self) -> str:
        return named(self.command, self.plan)

    def stored(self) -> Baseline:
        """What of it may be written down; an older hotlap left secrets in the command."""
        return replace(self, command=masked_line(self.command))


@dataclass(frozen=True)
class Baselines:
    """The file: one baseline for each command, plan and machine."""

    baselines: tuple[Baseline, ...] = ()


class Standing(StrEnum):
    """How today's runs stand to the baseline."""

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "no slower"
    NOT_DECIDED = "not decided"


@dataclass(frozen=True)
class Compared:
    """A ratio of today to the baseline, with its interval."""

    value: float
    interval: Interval


@dataclass(frozen=True)
class Checked:
    """`ratio` of the rates; `drift` of the machine; `beside` of the rates, each divided by the machine's own pace."""

    before: Baseline
    after: Baseline
    tolerance: float
    ratio: Compared
    drift: Compared | None
    beside: Compared | None
    standing: Standing
    reason: str


def named(command: str, plan: str) -> str:
    """What a baseline is found by: the command, and the plan where there is one."""
    return f"{command} under {plan}" if plan else command


def in_one_count(before: Baseline, after: Baseline) -> tuple[Baseline, Baseline] | None:
    """Both in one count; None where nothing was counted in both. The script may have changed between them."""
    counts = count_for([[before.figures], [after.figures]], one_job=False)
    return (_counted(before, counts), _counted(after, counts)) if counts else None


def _counted(baseline: Baseline, counts: str) -> Baseline:
    if counts == baseline.figures.counts:
        return baseline
    return replace(baseline, rates=baseline.by_count[counts], figures=counted(baseline.figures, counts))


def machine_of(host: Host) -> MachineIdentity:
    """The part of a host that bears on its speed."""
    return MachineIdentity(host.cpu, host.cores, host.machine, tuple(gpu.name for gpu in host.gpus))
