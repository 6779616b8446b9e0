"""How much memory and how many cores a loader may use."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

RAM_SHARE = 0.25  # of what is free: the training needs the rest, and there may be a second loader
UNKNOWN_RAM = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Budget:
    """Bytes for batches that are under way, and cores for fetching them."""

    ram: int = field(default_factory=lambda: int(free_ram() * RAM_SHARE))
    cores: int = field(default_factory=lambda: usable_cores())


def usable_cores() -> int:
    """Those that this process may run on, and no more than its control group is given time for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.strip().isdigit():
        cores = min(cores, max(1, round(int(quota) / int(period))))
    return max(1, cores)


def free_ram() -> int:
    """Bytes that can be used without pushing others out."""
    lines = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line)
    free = int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else UNKNOWN_RAM
    limit, used = _read(_CGROUP / "memory.max").strip(), _read(_CGROUP / "memory.current").strip()
    if limit.isdigit() and used.isdigit():
        free = min(free, max(0, int(limit) - int(used)))
    return free


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
