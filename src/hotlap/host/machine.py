"""Finds the facts of this machine, without importing torch and without touching a GPU.

They hold for a job that is started from here: the cores, memory and GPUs are those that this process may use.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from hotlap.facts.host import Gpu, Host, Storage
from hotlap.facts.job import Job
from hotlap.host.gpus import Nvml
from hotlap.host.interpreter import installed_for, job_python, python_of
from hotlap.host.storage import NotMeasurableError, read_speed


def inspect_host(folder: Path | None = None, *, job: Job | None = None) -> Host:
    """The facts of this machine; with a folder, also how fast it reads (a file is written there for it).

    Versions are those that the job finds: hotlap may be installed elsewhere.
    """
    found = installed_for(python_of(job.argv[0]) if job is not None else job_python())
    system = platform.system()
    cpu = read_cpu(system)
    limits = cgroup_limits()
    allowed = affinity_cores()
    ram, ram_free = _memory(limits)
    shm = _shared_memory(Path("/dev/shm"))
    storage, note = _storage(folder)
    gpus, driver = _gpus()
    cores = allowed if limits.cpus is None else max(1, min(allowed, int(limits.cpus)))
    return Host(
        system=system,
        cpu=cpu.name,
        cores=cores,
        physical_cores=physical_cores(),
        ram_bytes=ram,
        ram_free_bytes=ram_free,
        shm_bytes=shm[0] if shm else None,
        shm_free_bytes=shm[1] if shm else None,
        start_method=multiprocessing.get_all_start_methods()[0],  # the first is the platform's default
        cpu_bf16=bool(BF16_FLAGS & set(cpu.flags or ())),
        cpu_amx="amx_bf16" in (cpu.flags or ()),
        gpus=gpus,
        storage=storage,
        compiler=find_compiler(),
        versions=found["versions"] | driver,
        machine=platform.machine(),
        machine_cores=psutil.cpu_count(),
        affinity_cores=allowed,
        cpu_quota=limits.cpus,
        cpu_flags=cpu.flags,
        python_headers=found["headers"],
        storage_note=note,
    )


def find_compiler() -> str | None:
    """The C++ compiler that torch.compile would call: $CXX, else the system's own. None: it does not run."""
    default = {"win32": "cl", "darwin": "clang++"}.get(sys.platform, "g++")
    path = shutil.which(os.environ.get("CXX", default))
    if path is None or sys.platform == "win32":
        return path
    # macOS ships a clang++ that asks to install the developer tools; asking for their folder opens no window.
    check = ["xcode-select", "-p"] if sys.platform == "darwin" else [path, "--version"]
    try:
        subprocess.run(check, capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return path


def _memory(limits: ResourceLimits) -> tuple[int, int]:
    """Total and free, no more than the container grants."""
    machine = psutil.virtual_memory()
    total, free = machine.total, machine.available
    if limits.memory_bytes is not None and limits.memory_bytes < total:
        total = limits.memory_bytes
    if limits.memory_free_bytes is not None:
        free = min(free, limits.memory_free_bytes)
    return total, min(free, total)


def _shared_memory(place: Path) -> tuple[int, int] | None:
    try:
        usage = shutil.disk_usage(place)
    except OSError:
        return None
    return usage.total, usage.free


def _storage(folder: Path | None) -> tuple[Storage | None, str]:
    if folder is None:
        return None, "no folder was named"
    try:
        return read_speed(folder), ""
    except NotMeasurableError as reason:
        return None, str(reason)


def _gpus() -> tuple[tuple[Gpu, ...], dict[str, str]]:
    nvml = Nvml()
    try:
        return nvml.describe(), {} if nvml.driver is None else {"nvidia-driver": nvml.driver}
    finally:
        nvml.close()


# The processor: its name, the instruction sets that training gains from, the cores this process may use.


FLAG_NAMES = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_bf16": "avx512_bf16",
    "amx_bf16": "amx_bf16",
    "bf16": "arm_bf16",  # as Linux on ARM writes it
    "feat_bf16": "arm_bf16",  # as macOS writes it
}
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "arm_bf16"}


@dataclass(frozen=True)
class Cpu:
    """`flags` is None where this system does not tell."""

    name: str
    flags: tuple[str, ...] | None


def read_cpu(system: str, root: Path = Path("/")) -> Cpu:
    """Name and flags, from /proc on Linux and sysctl on macOS; elsewhere only the name."""
    if system == "Linux":
        try:
            return cpu_from_cpuinfo((root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            pass
    if system == "Darwin":
        return cpu_from_sysctl(_sysctl())
    return Cpu(platform.processor() or platform.machine(), None)


def cpu_from_cpuinfo(text: str) -> Cpu:
    """The first processor's name and flags. ARM kernels write no model name and call the flags `Features`."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon:
            fields.setdefault(key.strip().lower(), value.strip())
    words = fields.get("flags", fields.get("features"))
    name = fields.get("model name") or fields.get("hardware") or platform.processor() or platform.machine()
    return Cpu(name, None if words is None else _known_flags(words.split()))


def cpu_from_sysctl(text: str) -> Cpu:
    """From `sysctl machdep.cpu hw.optional`: Intel lists its features in words, Apple one switch a line."""
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    listed = " ".join(value.lower() for key, value in fields.items() if key.endswith("features"))
    switched_on = [key.rpartition(".")[2].lower() for key, value in fields.items() if value.strip() == "1"]
    name = fields.get("machdep.cpu.brand_string", "") or platform.processor() or platform.machine()
    return Cpu(name, _known_flags(listed.split() + switched_on) if fields else None)


def affinity_cores() -> int:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return psutil.cpu_count() or 1


def physical_cores(root: Path = Path("/")) -> int | None:
    """Cores without hyper-threads, of those that this process may run on."""
    siblings = set()
    for core in os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ():
        topology = root / f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
        try:
            siblings.add(topology.read_text(encoding="ascii").strip())
        except OSError:
            return psutil.cpu_count(logical=False)
    return len(siblings) or psutil.cpu_count(logical=False)


def _known_flags(words: list[str]) -> tuple[str, ...]:
    return tuple(sorted({FLAG_NAMES[word] for word in words if word in FLAG_NAMES}))


def _sysctl() -> str:
    try:
        command = ["/usr/sbin/sysctl", "machdep.cpu", "hw.optional"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


# What the container grants: the cgroup's limits on CPU time and memory, version 1 and 2.
#
# The limits of every ancestor hold as well, so the lowest on the way up counts. A container sees its own
# cgroup as the root of the mount, or (version 1 without a cgroup namespace) under the host's name for it;
# mountinfo tells which.


NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes "no limit" as a number close to 2^63; no machine has this much memory."""


@dataclass(frozen=True)
class ResourceLimits:
    """Cores' worth of CPU time, and bytes of memory: in all, and not yet used. None: not limited."""

    cpus: float | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None


def cgroup_limits(root: Path = Path("/")) -> ResourceLimits:
    """The limits of the cgroup that this process is in. `root` is where /proc and /sys are looked for."""
    cpus = [quota for folder in _folders(root, "cpu") if (quota := _cpu_quota(folder)) is not None]
    memory = [limit for folder in _folders(root, "memory") if (limit := _cgroup_memory(folder)) is not None]
    return ResourceLimits(
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


def _cgroup_memory(folder: Path) -> tuple[int, int] | None:
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


# How fast the machine is right now: a fixed piece of work that has nothing to do with any job.
#
# Runs of today and of last week cannot be run in turn. Measured beside both, this work tells what the machine
# itself has gained or lost in between: a busier neighbour, another clock speed, a throttled container.


_ROUNDS = 100_000  # of integer arithmetic
_COPIES, _BUFFER = 2, 16 << 20  # copying memory: larger than most caches
_PACE_REPEATS = 11  # about a second in all; the middle one counts
_MOST = 64  # processes at once


def pace(cores: int) -> float | None:
    """Pieces of work a second when all cores are at it; None where processes cannot be forked."""
    if not hasattr(os, "fork"):
        return None
    count = max(1, min(cores, _MOST))
    return 1.0 / median(slowest(count, _fixed_work) for _ in range(_PACE_REPEATS))


def slowest(count: int, work: Callable[[], float]) -> float:
    """Seconds that the slowest of so many processes takes, all at work at once."""
    source, sink = os.pipe()
    children = [_child(sink, work) for _ in range(count)]
    os.close(sink)
    told = b""
    while part := os.read(source, 4096):
        told += part
    os.close(source)
    for child in children:
        os.waitpid(child, 0)
    return max((float(line) for line in told.split()), default=float("inf"))


def _child(sink: int, work: Callable[[], float]) -> int:
    child = os.fork()
    if child == 0:
        try:
            os.write(sink, f"{work():.9f}\n".encode())
        finally:
            os._exit(0)
    return child


def _fixed_work() -> float:
    started, total = time.perf_counter(), 0
    for number in range(_ROUNDS):
        total += number * number
    buffer = bytearray(_BUFFER)
    for _ in range(_COPIES):
        buffer = bytearray(buffer)
    return time.perf_counter() - started
