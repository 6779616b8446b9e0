"""The processor: its name, the instruction sets that training gains from, the cores this process may use."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

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
