"""What the container grants: the cgroup's limits on CPU time and memory, version 1 and 2.

The limits of every ancestor hold as well, so the lowest on the way up counts. A container sees its own
cgroup as the root of the mount, or (version 1 without a cgroup namespace) under the host's name for it;
mountinfo tells which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as a number close to 2^63; no machine has this much memory."""


@dataclass(frozen=True)
class Limits:
    """Cores' worth of CPU time, and bytes of memory: in all, and not yet used. None: not limited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None


def cgroup_limits(root: Path = Path("/")) -> Limits:
    """The limits of the cgroup that this process is in. `root` is where /proc and /sys are looked for."""
    cpus = [quota for folder in _folders(root, "cpu") if (quota := _cpu_quota(folder)) is not None]
    memory = [limit for folder in _folders(root, "memory") if (limit := _memory(folder)) is not None]
    return Limits(
        cpus=min(cpus, default=None),
        memory_bytes=min((limit for limit, _ in memory), default=None),
        memory_free_bytes=min((free for _, free in memory), default=None),
    )


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The process's cgroup folder and its ancestors, for each hierarchy that could hold the controller."""
    paths = _cgroup_paths(root)
    for mount_root, mount_point, controllers in _cgroup_mounts(root):
        name = "" if controllers is None else controller
        path = paths.get(name) if controllers is None or controller in controllers else None
        if path is None:
            continue
        inner = path.removeprefix(mount_root.rstrip("/")) if path.startswith(mount_root) else ""
        parts = [part for part in inner.split("/") if part]
        if ".." in parts:  # the cgroup lies outside of this namespace
            parts = []
        top = root / mount_point.lstrip("/")
        for depth in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:depth])


def _cgroup_paths(root: Path) -> dict[str, str]:
    """Controller to path; version 2 stands under the empty name."""
    paths = {}
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _cgroup_mounts(root: Path) -> Iterator[tuple[str, str, set[str] | None]]:
    """Root within the hierarchy, mount point, and controllers (None: version 2) of each cgroup mount."""
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if kind[:1] == ["cgroup2"]:
            yield fields[3], fields[4], None
        elif kind[:1] == ["cgroup"]:
            yield fields[3], fields[4], set(kind[-1].split(","))


def _cpu_quota(folder: Path) -> float | None:
    quota, period = [*_words(folder / "cpu.max"), "max", "0"][:2]
    if quota == "max":
        quota = next(iter(_words(folder / "cpu.cfs_quota_us")), "-1")
        period = next(iter(_words(folder / "cpu.cfs_period_us")), "0")
    return int(quota) / int(period) if int(quota) > 0 and int(period) > 0 else None


def _memory(folder: Path) -> tuple[int, int] | None:
    """Limit and what is left of it. Idle file cache counts as left: the kernel gives it up on demand."""
    for limit_name, usage_name, cache_key in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        words = _words(folder / limit_name)
        if words and words[0] != "max" and int(words[0]) < NO_LIMIT_BYTES:
            limit = int(words[0])
            used = int(next(iter(_words(folder / usage_name)), "0"))
            stat = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
            return limit, max(0, limit - max(0, used - int(stat.get(cache_key, "0"))))
    return None


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
