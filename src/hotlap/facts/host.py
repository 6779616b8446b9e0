"""The facts of one machine, as far as they bear on training speed. None means: not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Gpu:
    """One CUDA device and what it supports."""

    name: str
    memory_bytes: int
    capability: tuple[int, int] = (0, 0)
    bf16: bool = False
    tf32: bool = False
    tensor_cores: bool = False


@dataclass(frozen=True)
class Storage:
    """How fast a folder reads: sequentially, from the disk and not from the page cache."""

    folder: str
    read_bytes_per_s: float
    method: str = ""  # how the page cache was kept out of it


@dataclass(frozen=True)
class Host:
    """Cores (those this process may use), memory, devices, compiler and versions.

    `cpu_flags` names only instruction sets that training gains from: avx2 avx512 avx512_bf16 amx_bf16
    arm_bf16. `cpu_bf16` is also False where the flags are not known. `cores` never exceeds the container's
    `cpu_quota`.
    """

    system: str
    cpu: str
    cores: int
    physical_cores: int | None
    ram_bytes: int
    ram_free_bytes: int
    shm_bytes: int | None
    shm_free_bytes: int | None
    start_method: str
    cpu_bf16: bool = False
    cpu_amx: bool = False
    gpus: tuple[Gpu, ...] = ()
    storage: Storage | None = None
    compiler: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""  # architecture: x86_64, arm64
    machine_cores: int | None = None  # logical cores that the machine has, allowed to this process or not
    affinity_cores: int | None = None  # cores that this process may run on, before the quota
    cpu_quota: float | None = None  # cores' worth of time that the container grants
    cpu_flags: tuple[str, ...] | None = None
    python_headers: bool | None = None  # Python.h, which torch.compile includes
    storage_note: str = ""  # why the storage was not measured

    @property
    def named(self) -> str:
        """In a few words, for whoever quotes a figure from it."""
        gpus = ", ".join(gpu.name for gpu in self.gpus) or "no GPU"
        return f"{self.cores} cores ({self.cpu}), {gpus}"
