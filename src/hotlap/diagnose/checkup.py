"""What the facts of a machine mean for training speed, before any job has run on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from hotlap.facts.host import Gpu, Host
from hotlap.units import rate, share, size

MIB = 1 << 20
GIB = 1 << 30
TINY_SHM = 512 * MIB
"""Docker grants 64 MiB. Two workers with two batches of 256 images each hold about this much in flight."""
SMALL_SHM = 2 * GIB
FREE_RAM_SHARE = 0.1
"""With less than this free, the page cache has no room and the next big tensor ends in swapping or a kill."""
CORES_PER_GPU = 4
"""One core drives the GPU. Fewer than three beside it rarely decode images as fast as a GPU takes them."""
SLOW_DISK = 200e6
"""Bytes a second: a hard disk in sequence, or a network mount. Shuffled reading is slower still."""
SAMPLE_FILE_BYTES = 110e3
"""A typical JPEG of ImageNet, to turn bytes a second into items a second."""
OLDEST_FOR_CUDA_13 = (7, 5)
"""CUDA 13 dropped the generations before Turing, and builds of torch for it hold no code for them."""
TESTED_TORCH = (2, 6), (2, 13)
"""The oldest and the newest release that hotlap's tests run with, as the extra `torch` of pyproject.toml has it."""


class Level(StrEnum):
    """How much a fact asks for something to be done."""

    OK = "ok"
    HINT = "hint"
    WARNING = "warning"


@dataclass(frozen=True)
class Check:
    """One fact and what it means."""

    topic: str
    value: str
    meaning: str
    level: Level = Level.OK


def checkup(host: Host) -> tuple[Check, ...]:
    """One check per fact, in the order in which they matter to most jobs."""
    return (
        *_gpus(host),
        _cores(host),
        _cpu(host),
        _ram(host),
        _shm(host),
        _start_method(host),
        _storage(host),
        _compiler(host),
        _torch(host),
        _frameworks(host),
    )


def _gpus(host: Host) -> Iterator[Check]:
    if not host.gpus:
        yield _no_gpu(host)
    for index, gpu in enumerate(host.gpus):
        topic = f"GPU {index}" if len(host.gpus) > 1 else "GPU"
        value = f"{gpu.name}, {size(gpu.memory_bytes)}" if gpu.memory_bytes else gpu.name
        yield Check(topic, value, *_precision(gpu))
    if any(gpu.tf32 for gpu in host.gpus):
        meaning = (
            "fp32 matrix products could run on tensor cores but do not by default: "
            "torch.set_float32_matmul_precision('high'); convolutions use it already"
        )
        yield Check("TF32", "available, off", meaning, Level.HINT)


def _no_gpu(host: Host) -> Check:
    if "hip" in host.versions:
        return Check("GPU", "not measured", "torch is built for ROCm; only NVIDIA GPUs are looked at here")
    if host.system == "Darwin" and host.machine == "arm64":
        meaning = "training runs on the CPU, or on Apple's GPU as device 'mps', which is not looked at here"
        return Check("GPU", "no NVIDIA GPU", meaning)
    if "cuda" in host.versions:
        meaning = (
            f"torch is built for CUDA {host.versions['cuda']} but no GPU is seen: does nvidia-smi list one? "
            "In a container: docker run --gpus all"
        )
        return Check("GPU", "none", meaning, Level.HINT)
    return Check("GPU", "none", "training runs on the CPU")


def _precision(gpu: Gpu) -> tuple[str, Level]:
    if gpu.capability == (0, 0):
        return "what it supports was not told by the driver", Level.OK
    if gpu.bf16:
        return "bf16 on tensor cores: autocast to bf16 pays and needs no GradScaler", Level.OK
    if gpu.tensor_cores:
        return "no bf16 in hardware: for speed use fp16 autocast with a GradScaler", Level.HINT
    return "no tensor cores: mixed precision saves memory, but hardly time", Level.HINT


def _cores(host: Host) -> Check:
    total = host.machine_cores or host.cores
    value = f"{host.cores} of {total}" if total > host.cores else str(host.cores)
    allowed = host.affinity_cores or host.cores
    if host.cpu_quota is not None and host.cpu_quota < allowed:
        meaning = (
            f"the container grants the time of {host.cpu_quota:g} cores, but torch starts {allowed} threads "
            f"and is throttled: set OMP_NUM_THREADS={host.cores}; {_worker_limit(host)}"
        )
        return Check("cores", value, meaning, Level.WARNING)
    if host.cores == 1:
        meaning = "a loader worker only takes time from training itself: make items cheap, or cache them"
        return Check("cores", value, meaning, Level.WARNING)
    if host.gpus and host.cores < CORES_PER_GPU * len(host.gpus):
        gpus = _count(len(host.gpus), "GPU")
        meaning = f"few for {gpus}: {_worker_limit(host)}; make items cheap, or cache them"
        return Check("cores", value, meaning, Level.HINT)
    return Check("cores", value, _worker_limit(host))


def _worker_limit(host: Host) -> str:
    limit = f"at most {_count(host.cores, 'CPU-bound loader worker')}"
    if host.physical_cores and host.physical_cores < host.cores:
        cores = _count(host.physical_cores, "physical core")
        return f"{limit}, on {cores}: a hyper-thread more brings far less than a core"
    return limit if host.gpus else f"{limit}, each of which takes its core from the model"


def _cpu(host: Host) -> Check:
    flags = host.cpu_flags
    value = host.cpu or "not known"
    if flags is None and not host.cpu_bf16:
        return Check("CPU", value, f"whether bf16 pays on it is not measured on {_system(host)}")
    if host.machine.lower() in ("x86_64", "amd64") and flags is not None and "avx2" not in flags:
        return Check("CPU", value, "AVX2 absent: torch computes with its slowest kernels", Level.WARNING)
    if host.cpu_amx:
        return Check("CPU", value, "AMX: autocast to bf16 pays also without a GPU")
    if host.cpu_bf16:
        return Check("CPU", value, "bf16 in hardware: autocast to bf16 may pay also without a GPU")
    names = "bf16 instructions" if host.machine.lower() in ("arm64", "aarch64") else "AVX512-BF16/AMX"
    meaning = f"{names} absent: bf16 on this CPU is slower than fp32"
    return Check("CPU", value, meaning, Level.OK if host.gpus else Level.HINT)


def _ram(host: Host) -> Check:
    value = f"{size(host.ram_bytes)}, {size(host.ram_free_bytes)} free"
    free = host.ram_free_bytes / host.ram_bytes if host.ram_bytes else 0.0
    if free < FREE_RAM_SHARE:
        meaning = f"only {share(free)} is free: files leave the cache before they are read again"
        return Check("memory", value, meaning, Level.WARNING)
    copies = "" if host.start_method == "fork" else "; each worker holds its own copy"
    meaning = f"a dataset of up to about {size(host.ram_free_bytes / 2)} can be cached in memory{copies}"
    return Check("memory", value, meaning)


def _shm(host: Host) -> Check:
    if host.shm_bytes is None or host.shm_free_bytes is None:
        if host.system != "Linux":
            return Check("/dev/shm", "none", f"not used on {_system(host)}")
        meaning = "workers hand over batches through it and will fail: mount it, or use num_workers=0"
        return Check("/dev/shm", "none", meaning, Level.WARNING)
    value = size(host.shm_bytes)
    if host.shm_bytes < TINY_SHM:
        meaning = "workers will crash with Bus error: run docker with --shm-size=8g, or --ipc=host"
        return Check("/dev/shm", value, meaning, Level.WARNING)
    if host.shm_free_bytes < TINY_SHM:
        meaning = "nearly full, workers will crash with Bus error: end or clean up what fills it"
        return Check("/dev/shm", f"{value}, {size(host.shm_free_bytes)} free", meaning, Level.WARNING)
    if host.shm_free_bytes < SMALL_SHM:
        meaning = "enough for small batches: workers x prefetch_factor x batch must fit into it"
        return Check("/dev/shm", f"{value}, {size(host.shm_free_bytes)} free", meaning, Level.HINT)
    return Check("/dev/shm", value, "room for batches that workers hand over")


def _start_method(host: Host) -> Check:
    if host.start_method == "fork":
        meaning = "workers start fast and share the dataset's memory until it is written to"
        return Check("start method", "fork", meaning)
    verb = "spawn" if host.start_method == "spawn" else "start anew"
    meaning = (
        f"workers {verb} on {_system(host)}: each imports your script again, guard it with "
        "if __name__ == '__main__'; starting them is slow, use persistent_workers=True"
    )
    return Check("start method", host.start_method, meaning, Level.HINT)


def _storage(host: Host) -> Check:
    if host.storage is None:
        return Check("storage", "not measured", host.storage_note or "no folder was named")
    speed = host.storage.read_bytes_per_s
    items = rate(speed / SAMPLE_FILE_BYTES)
    meaning = f"{host.storage.folder}: at most {items} files of 110 KB a second"
    if host.storage.method:
        meaning += f" ({host.storage.method})"
    if speed >= SLOW_DISK:
        return Check("storage", f"{size(speed)}/s", meaning)
    remedy = "copy the data to a local disk, or pack it into large files"
    return Check("storage", f"{size(speed)}/s", f"{meaning}; slow: {remedy}", Level.WARNING)


def _compiler(host: Host) -> Check:
    if host.compiler is None:
        where = "on CPU, and on a GPU Triton needs one too" if host.gpus else "on CPU"
        name = {"Windows": "Visual C++ (cl)", "Darwin": "Xcode's command line tools"}.get(host.system, "g++")
        meaning = f"torch.compile does not work {where}: install {name}, or set CXX to another compiler"
        return Check("compiler", "none", meaning, Level.WARNING)
    if host.python_headers is False:
        meaning = "Python.h is missing, so torch.compile does not work: install python3-dev"
        return Check("compiler", host.compiler, meaning, Level.WARNING)
    if host.gpus and "cuda" in host.versions and "triton" not in host.versions:
        meaning = "Triton is missing: torch.compile works on CPU but not on the GPU"
        return Check("compiler", host.compiler, meaning, Level.HINT)
    return Check("compiler", host.compiler, "torch.compile can build its kernels")


def _torch(host: Host) -> Check:
    python = f"Python {host.versions.get('python', 'not known')}"
    if "torch" not in host.versions:
        meaning = f"not installed for this {python}: activate the environment of your training"
        return Check("torch", "none", meaning, Level.WARNING)
    cuda = host.versions.get("cuda")
    if host.gpus and cuda is None:
        meaning = "a build without CUDA: the GPU stays unused; install a build for CUDA"
        return Check("torch", host.versions["torch"], meaning, Level.WARNING)
    old = [gpu for gpu in host.gpus if (0, 0) < gpu.capability < OLDEST_FOR_CUDA_13]
    if old and cuda is not None and int(cuda.partition(".")[0]) >= 13:
        meaning = f"built for CUDA {cuda}, which has no code for {old[0].name}: install a build for CUDA 12"
        return Check("torch", host.versions["torch"], meaning, Level.WARNING)
    if not TESTED_TORCH[0] <= _release(host.versions["torch"]) <= TESTED_TORCH[1]:
        oldest, newest = (f"{major}.{minor}" for major, minor in TESTED_TORCH)
        meaning = (
            f"{python}; hotlap is tested with torch {oldest} to {newest}: compare a run with and without it"
        )
        return Check("torch", host.versions["torch"], meaning, Level.HINT)
    return Check("torch", host.versions["torch"], python + (f", built for CUDA {cuda}" if cuda else ""))


def _release(version: str) -> tuple[int, int]:
    major, minor, *_ = [*version.split("."), "0"]
    return int(major), int(minor)


def _frameworks(host: Host) -> Check:
    known = ("lightning", "transformers", "accelerate", "mmengine")
    found = [f"{name} {host.versions[name]}" for name in known if name in host.versions]
    if not found:
        return Check("frameworks", "none", "plain training loops need none")
    return Check("frameworks", ", ".join(found), "their validation, logging and checkpoints are told apart")


def _system(host: Host) -> str:
    return "macOS" if host.system == "Darwin" else host.system


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
