"""Lines of presets on computing: precision, compiler, optimizer, layout, and memory given up for time."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.propose.ground import Ground, Line


def free_of_cost(ground: Ground) -> Iterator[Line]:
    yield "set-to-none", True, "gradients are dropped instead of filled with zeros"
    yield "debug-mode-off", True, "switches for finding faults cost time at every step"
    if ground.gpu is not None:
        yield "cudnn-benchmark", True, "cuDNN tries its kernels once and keeps the fastest"
        if ground.gpu.tf32:
            yield "tf32", True, "fp32 matrix products on the tensor cores of this GPU"


def precision(ground: Ground) -> Iterator[Line]:
    gpu, host = ground.gpu, ground.host
    if gpu is not None and gpu.bf16:
        yield "precision", "bf16-mixed", f"{gpu.name} computes bf16 on tensor cores, and needs no scaling"
    elif gpu is not None and gpu.tensor_cores:
        yield "precision", "16-mixed", f"{gpu.name} has tensor cores for fp16 but no bf16"
    elif gpu is None and host.cpu_bf16:
        yield "precision", "bf16-mixed", "this CPU has bf16 instructions"


def fused(ground: Ground) -> Iterator[Line]:
    where = "kernel on the GPU" if ground.gpu is not None else "loop"
    yield "fused-optimizer", "fused", f"one {where} for all parameters instead of one for each"


def compiled(ground: Ground) -> Iterator[Line]:
    """Where there is a compiler; its stronger modes take memory and need a large GPU."""
    host = ground.host
    if host.compiler is None or host.python_headers is False:
        return
    if ground.gpu is None:
        yield "compile", "default", f"{host.compiler} is there to build fused loops"
    elif "triton" in host.versions:
        mode = {24: "max-autotune", 16: "reduce-overhead"}.get(ground.gpu_class, "default")
        room = f"{ground.gpu_class} GB of GPU memory or more" if ground.gpu_class else "little GPU memory"
        yield "compile", mode, f"Triton is there to build fused kernels, with {room}"


def layout(ground: Ground) -> Iterator[Line]:
    if ground.gpu is not None and ground.gpu.tensor_cores:
        yield "channels-last", True, "convolutions on tensor cores read this layout without a copy"


def recomputed(ground: Ground) -> Iterator[Line]:
    """Where memory is plenty, time is worth more."""
    if ground.gpu is not None and ground.gpu_class < 24:
        have = f"{ground.gpu_class} GB class" if ground.gpu_class else "less than 8 GB"
        yield "grad-checkpointing", True, f"activations are computed again instead of kept ({have})"
    elif ground.gpu is None:
        yield "grad-checkpointing", True, "activations are computed again instead of kept in memory"
