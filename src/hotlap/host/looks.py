"""What the parent saw of a running job: each look with its processes, the machine and the GPUs.

A look keeps all processes of the job, as only the end of a run tells which of them trained (one per rank).
`gauge` then draws the view of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hotlap.facts.timeline import Gauge


class Usage(NamedTuple):
    """One process since the look before. CPU shares: 1.0 is one core. No memory left: it has just ended."""

    parent: int
    rss: int
    own: float
    reaped: float = 0.0  # used by children that came to their end, and not counted by a look of their own


class GpuLook(NamedTuple):
    """One GPU. `memory_by_pid` holds None where the driver does not tell the size (Windows)."""

    busy: float | None
    memory_used: int | None
    memory_by_pid: Mapping[int, int | None]
    clock: float | None = None  # of its highest
    throttle: frozenset[str] | None = None  # what holds it back
    lost: bool = False


@dataclass(frozen=True)
class MachineLoad:
    """Core shares on the cores that the job may use; `stolen` went to other guests of a hypervisor."""

    busy: float
    iowait: float
    stolen: float | None
    cores: tuple[float, ...]


@dataclass(frozen=True)
class JobSnapshot:
    """One look at the job whose first process is `root`, over the `span_s` seconds before `t`."""

    t: int
    span_s: float
    root: int
    processes: Mapping[int, Usage]
    machine: MachineLoad
    gpus: tuple[GpuLook, ...] = ()

    @property
    def tree_rss(self) -> int:
        return sum(each.rss for each in self.processes.values())

    def gauge(self, pid: int | None = None) -> Gauge | None:
        """The look from where one training process stands (None: the root); None where it is not there."""
        main = self.root if pid is None else pid
        if main not in self.processes or not self.processes[main].rss:
            return None
        family = self._family(main)
        family_cpu = sum(each.own + each.reaped for each in family.values())
        job_cpu = sum(each.own + each.reaped for each in self.processes.values())
        own = self.processes[main]
        busy, job_memory, all_memory = _gpu_view(self.gpus, set(family))
        meant = _meant(self.gpus, set(family))
        clocks = [gpu.clock for gpu in meant if gpu.clock is not None]
        held = [gpu.throttle for gpu in meant if gpu.throttle is not None]
        known = any(gpu.memory_by_pid.keys() & self.processes.keys() for gpu in meant)
        others = {pid for gpu in meant for pid in gpu.memory_by_pid} - set(self.processes)
        return Gauge(
            t=self.t,
            rss=own.rss,
            cpu=own.own,
            workers_cpu=max(0.0, family_cpu - own.own),
            foreign_cpu=max(0.0, self.machine.busy - job_cpu),
            iowait=self.machine.iowait,
            cores=self.machine.cores,
            gpu_busy=busy,
            tree_rss=sum(each.rss for each in family.values()),
            stolen=self.machine.stolen,
            gpu_memory=job_memory,
            gpu_memory_used=all_memory,
            gpu_clock=min(clocks, default=None),
            gpu_throttle=", ".join(sorted(frozenset[str]().union(*held))) if held else None,
            gpu_others=len(others) if known else None,
            gpu_lost=any(gpu.lost for gpu in meant),
        )

    def _family(self, main: int) -> Mapping[int, Usage]:
        """The process and its descendants. The root's family is the whole job, orphans too."""
        if main == self.root:
            return self.processes
        family = {main: self.processes[main]}
        grown = True
        while grown:
            more = {p: u for p, u in self.processes.items() if u.parent in family and p not in family}
            family.update(more)
            grown = bool(more)
        return family


@dataclass
class LookRecord:
    """The looks of a run, oldest first, at most `limit` of them however long the job runs.

    When it is full, the look with more memory of every two neighbours stays, so that no peak is lost. The
    default keeps all looks, taken twice a second, for 17 minutes, and one every 35 minutes or better for a
    month.
    """

    limit: int = 2048
    looks: list[JobSnapshot] = field(default_factory=list)
    _stride: int = 1
    _pending: list[JobSnapshot] = field(default_factory=list)

    def add(self, look: JobSnapshot | None) -> None:
        """Keep a look; None (the job was gone) is passed over."""
        if look is None:
            return
        self._pending.append(look)
        if len(self._pending) == self._stride:
            self.looks.append(_fullest(self._pending))
            self._pending = []
        if len(self.looks) >= self.limit:
            self.looks = [_fullest(self.looks[at : at + 2]) for at in range(0, len(self.looks), 2)]
            self._stride *= 2

    def gauges(self, pid: int | None = None) -> tuple[Gauge, ...]:
        """The run as one training process saw it."""
        last = [_fullest(self._pending)] if self._pending else []
        found = (look.gauge(pid) for look in self.looks + last)
        return tuple(gauge for gauge in found if gauge is not None)


def _fullest(looks: Sequence[JobSnapshot]) -> JobSnapshot:
    return max(looks, key=lambda look: look.tree_rss)


def _meant(gpus: Sequence[GpuLook], family: set[int]) -> Sequence[GpuLook]:
    return [gpu for gpu in gpus if family & set(gpu.memory_by_pid)] or gpus


def _gpu_view(gpus: Sequence[GpuLook], family: set[int]) -> tuple[float | None, int | None, int | None]:
    """Busy share, memory of the family and of everyone, on the GPUs that the family uses.

    Where the driver does not know the family (in a container it may list the host's process ids), all visible
    GPUs are meant, and the family's own memory is not known.
    """
    used = [gpu for gpu in gpus if family & set(gpu.memory_by_pid)]
    meant = used or gpus
    busy = [gpu.busy for gpu in meant if gpu.busy is not None]
    taken = [gpu.memory_used for gpu in meant if gpu.memory_used is not None]
    sizes = [gpu.memory_by_pid.get(pid) for gpu in used for pid in family]
    own = [size for size in sizes if size is not None]
    return (
        sum(busy) / len(busy) if busy else None,
        sum(own) if own else None,
        sum(taken) if taken else None,
    )
