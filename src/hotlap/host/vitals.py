"""The parent's gauge of a running job: memory, CPU and GPU of its processes, and who else uses the machine.

It reads counters from outside, about twice a second, and never touches the job. Processes come and go
between two looks: the CPU time of one that has ended is found in its parent's count of reaped children, so
that it is not taken for somebody else's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

import psutil

from hotlap.host.gpus import Nvml
from hotlap.host.looks import JobSnapshot, MachineLoad, Usage
from hotlap.units import NS_PER_S


class Vitals:
    """Follows the job whose first process is `root`. Times are those of `clock`, in nanoseconds."""

    def __init__(self, root: int, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._clock = clock
        self._tree = ProcessTree(root)
        self._gpus = Nvml()
        self._cores = _usable_cores()
        self._before = self._read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the GPU driver."""
        self._gpus.close()

    def look(self) -> JobSnapshot | None:
        """The job since the look before, or since construction; None when all its processes have ended."""
        before, now = self._before, self._read()
        self._before = now
        span = (now.t - before.t) / NS_PER_S
        if not any(counts.rss for counts in now.processes.values()) or span <= 0:
            return None
        return JobSnapshot(
            t=now.t,
            span_s=span,
            root=self._tree.root,
            processes=_usages(before.processes, now.processes, span),
            machine=_machine(before.cores, now.cores, span),
            gpus=self._gpus.look(),
        )

    def _read(self) -> _Reading:
        counts = {pid: _counts(process) for pid, process in self._tree.members().items()}
        times = psutil.cpu_times(percpu=True)
        return _Reading(
            t=self._clock(),
            processes={pid: count for pid, count in counts.items() if count is not None},
            cores=[_core_times(times[core]) for core in self._cores if core < len(times)],
        )


class _Counts(NamedTuple):
    """Of one process, since it was born (seconds since 1970). Seconds of CPU time."""

    parent: int
    rss: int
    own: float
    reaped: float
    born: float


class _CoreTimes(NamedTuple):
    """Of one core, since the machine started."""

    busy: float
    iowait: float
    stolen: float | None


class _Reading(NamedTuple):
    t: int
    processes: Mapping[int, _Counts]
    cores: list[_CoreTimes]


def _counts(process: psutil.Process) -> _Counts | None:
    try:
        with process.oneshot():
            times = process.cpu_times()
            rss = process.memory_info().rss
            parent = process.ppid()
    except (psutil.Error, OSError):  # it ended while it was read
        return None
    # Windows knows of no reaped children, macOS keeps their count at zero.
    reaped = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return _Counts(parent, rss, times.user + times.system, reaped, process.create_time())


def _core_times(times: Any) -> _CoreTimes:
    """Systems differ in what they count. Time in a virtual machine is part of `user` already."""
    parts = ("user", "nice", "system", "irq", "softirq")
    busy = sum(float(getattr(times, part, 0.0)) for part in parts)
    return _CoreTimes(busy, getattr(times, "iowait", 0.0), getattr(times, "steal", None))


def _usages(before: Mapping[int, _Counts], now: Mapping[int, _Counts], span: float) -> dict[int, Usage]:
    """What an ended child was seen to use is taken off its parent's count of reaped children."""
    seen: dict[int, float] = {}
    for pid, counts in before.items():
        if pid not in now:
            seen[counts.parent] = seen.get(counts.parent, 0.0) + counts.own + counts.reaped
    usages = {}
    for pid, counts in now.items():
        earlier = before.get(pid)
        own, reaped, over = counts.own, counts.reaped, span
        if earlier is None:  # found late, it may be older than the span
            over = max(span, time.time() - counts.born)
        else:
            own, reaped = own - earlier.own, reaped - earlier.reaped - seen.get(pid, 0.0)
        usages[pid] = Usage(counts.parent, counts.rss, max(0.0, own) / over, max(0.0, reaped) / over)
    return usages


def _machine(before: list[_CoreTimes], now: list[_CoreTimes], span: float) -> MachineLoad:
    pairs = list(zip(before, now, strict=False))
    cores = tuple(min(1.0, max(0.0, new.busy - old.busy) / span) for old, new in pairs)
    stolen = [new.stolen - (old.stolen or 0.0) for old, new in pairs if new.stolen is not None]
    return MachineLoad(
        busy=sum(cores),
        iowait=sum(max(0.0, new.iowait - old.iowait) for old, new in pairs) / span,
        stolen=max(0.0, sum(stolen)) / span if stolen else None,
        cores=cores,
    )


def _usable_cores() -> list[int]:
    """Those that this process may run on, and with it the job that it starts."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(psutil.cpu_count() or 1))


# The processes of a job: its root, all descendants, and those that outlived their parent.


class ProcessTree:
    """Follows a root process. Once seen below the root, a process belongs to the tree until it is gone.

    Only processes that are new since the last look are examined, so following a job costs little on a machine
    with thousands of processes. A process whose parent ended before both were seen is missed.
    """

    def __init__(self, root: int) -> None:
        self.root = root
        self._seen: set[int] = set()
        self._members: dict[int, psutil.Process] = {}
        if (process := _open(root)) is not None:
            self._members[root] = process

    def members(self) -> dict[int, psutil.Process]:
        """All that exist now; an ended one exists until its parent has noticed."""
        self._members = {pid: process for pid, process in self._members.items() if process.is_running()}
        now = set(psutil.pids())
        fresh = {pid: parent for pid in now - self._seen if (parent := _parent(pid)) is not None}
        self._seen = now
        if self._members:
            self._adopt(fresh)
        return dict(self._members)

    def running(self) -> dict[int, psutil.Process]:
        """The members that have not ended."""
        return {pid: process for pid, process in self.members().items() if not _ended(process)}

    def _adopt(self, fresh: dict[int, int]) -> None:
        grown = True
        while grown:
            grown = False
            for pid, parent in list(fresh.items()):
                if parent in self._members and pid not in self._members:
                    del fresh[pid]
                    if (process := _open(pid)) is not None:
                        self._members[pid] = process
                        grown = True


def _open(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.Error:
        return None


def _parent(pid: int) -> int | None:
    try:
        return psutil.Process(pid).ppid()
    except psutil.Error:
        return None


def _ended(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return True
