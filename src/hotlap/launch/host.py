"""Finds the facts of this machine, without importing torch and without touching a GPU.

They hold for a job that is started from here: the cores, memory and GPUs are those that this process may use.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import psutil

from hotlap.facts.host import Gpu, Host, Storage
from hotlap.launch.cgroup import Limits, cgroup_limits
from hotlap.launch.cpu import BF16_FLAGS, affinity_cores, physical_cores, read_cpu
from hotlap.launch.nvml import Nvml
from hotlap.launch.storage import NotMeasurableError, read_speed
from hotlap.launch.worth import measured_worth

PACKAGES = {
    "torch": ("torch",),
    "lightning": ("lightning", "pytorch-lightning"),
    "transformers": ("transformers",),
    "accelerate": ("accelerate",),
    "mmengine": ("mmengine", "mmengine-lite"),
    "triton": ("triton", "triton-windows"),
}
"""Names of what a training script imports, and the distributions that bring it."""


def inspect_host(folder: Path | None = None, *, measure: bool = False) -> Host:
    """The facts of this machine; with a folder, also how fast it reads (a file is written there for it).

    `measure` finds out in a fifth of a second what the cores are worth together.
    """
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
        versions=_versions() | driver,
        machine=platform.machine(),
        machine_cores=psutil.cpu_count(),
        affinity_cores=allowed,
        cpu_quota=limits.cpus,
        cpu_flags=cpu.flags,
        python_headers=Path(sysconfig.get_paths()["include"], "Python.h").is_file(),
        storage_note=note,
        cores_worth=measured_worth(cores) if measure else None,
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


def _memory(limits: Limits) -> tuple[int, int]:
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


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package, distributions in PACKAGES.items():
        found = next((version for name in distributions if (version := _version(name))), None)
        if found:
            versions[package] = found
    return versions | _torch_backends()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch_backends() -> dict[str, str]:
    """What torch was built for (cuda, hip), read from its version file: importing torch takes seconds."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return {}
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r"^(cuda|hip)\b[^=\n]*=\s*'([^']+)'", text, flags=re.MULTILINE))
