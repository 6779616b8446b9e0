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


@dataclass(frozen=True)
class Host:
    """Cores (those this process may use), memory, devices, compiler and versions."""

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
