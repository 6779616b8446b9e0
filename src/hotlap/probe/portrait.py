"""Describes what the script built: loaders, models, optimizers, switches. Reads attributes, changes nothing."""

from __future__ import annotations

import inspect
import os
import weakref
from types import FrameType
from typing import Any

import torch
from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

from hotlap.probe.usercode import UserCode

_BLOCKING = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING")
"""What makes a driver wait for each operator."""

_user = UserCode()
optimizer_origins: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
"""Where each optimizer was built."""


def place_of_caller(frame: FrameType | None) -> list[Any] | None:
    """File, line and function of the innermost frame of the user's code."""
    while frame is not None:
        if _user.owns(frame.f_code):
            return [frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname]
        frame = frame.f_back
    return None


def user_frames(frame: FrameType | None) -> list[FrameType]:
    """The frames of the user's code, the innermost first."""
    found = []
    while frame is not None:
        if _user.owns(frame.f_code):
            found.append(frame)
        frame = frame.f_back
    return found


def place_of_method(kind: type, name: str) -> list[Any] | None:
    """Where a class of the user's defines a method; a library's own is no place to change."""
    method = inspect.unwrap(getattr(kind, name, None) or kind)
    code = getattr(method, "__code__", None)
    if code is None or not _user.owns(code):
        return None
    return [code.co_filename, code.co_firstlineno, code.co_qualname]


def loader_portrait(loader: Any) -> dict[str, Any]:
    dataset = loader.dataset
    iterable = isinstance(dataset, IterableDataset)
    sampler = getattr(loader, "sampler", None)
    context = loader.multiprocessing_context
    return {
        "dataset": type(dataset).__qualname__,
        "dataset_place": place_of_method(type(dataset), "__iter__" if iterable else "__getitem__"),
        "length": _length(dataset),
        "iterable": iterable,
        "batch_size": _batch_size(loader),
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "persistent_workers": bool(loader.persistent_workers),
        "pin_memory": bool(loader.pin_memory),
        "drop_last": bool(loader.drop_last),
        "collate": getattr(loader.collate_fn, "__qualname__", type(loader.collate_fn).__qualname__),
        "shuffle": _shuffles(sampler),
        "start_method": context.get_start_method() if context else torch.multiprocessing.get_start_method(),
    }


def _batch_size(loader: Any) -> int | None:
    size = loader.batch_size
    if size is None:
        size = getattr(loader.batch_sampler, "batch_size", None)
    return size if isinstance(size, int) else None


def _length(dataset: Any) -> int | None:
    try:
        return len(dataset)
    except (TypeError, NotImplementedError):
        return None


def _shuffles(sampler: Any) -> bool | None:
    if isinstance(sampler, RandomSampler):
        return True
    return False if isinstance(sampler, SequentialSampler) else None


def model_portrait(module: torch.nn.Module) -> dict[str, Any]:
    parameters = list(module.parameters())
    floats = [*parameters, *(each for each in module.buffers() if each.is_floating_point())]
    inner = getattr(module, "_orig_mod", module)
    inner = getattr(inner, "module", inner)
    return {
        "kind": type(inner).__qualname__,
        "place": place_of_method(type(inner), _computes_in(type(inner))),
        "parameters": sum(parameter.numel() for parameter in parameters),
        "modules": sum(1 for _ in module.modules()),
        "dtypes": sorted({str(each.dtype).removeprefix("torch.") for each in floats}),
        "devices": sorted({parameter.device.type for parameter in parameters}),
        "compiled": any(_is_compiled(each) for each in module.modules()),
        "frozen_parts": len(parts_that_do_not_train(module)),
    }


def parts_that_do_not_train(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The largest of its modules that have parameters and train none of them: quantizers, teachers, backbones."""
    trains = [parameter.requires_grad for parameter in module.parameters()]
    if trains and not any(trains):
        return [module]
    found = [part for child in module.children() for part in parts_that_do_not_train(child)]
    return list(dict.fromkeys(found)) if any(trains) else []


def _computes_in(kind: type) -> str:
    """The method that the user wrote: Lightning's modules often have no `forward` of their own."""
    methods = {name: getattr(kind, name, None) for name in ("forward", "training_step")}
    codes = {name: getattr(method, "__code__", None) for name, method in methods.items()}
    return next((name for name, code in codes.items() if code and _user.owns(code)), "forward")


def _is_compiled(module: torch.nn.Module) -> bool:
    """By `torch.compile`, also of a Lightning module, which keeps what it was compiled with."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiler_ctx", None) is not None


def optimizer_portrait(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    return {
        "kind": type(optimizer).__qualname__,
        "parameters": len(parameters),
        "elements": sum(parameter.numel() for parameter in parameters),
        "fused": any(bool(group.get("fused")) for group in groups),
        "foreach": groups[0].get("foreach") if groups else None,
        "device": parameters[0].device.type if parameters else "cpu",
        "place": optimizer_origins.get(optimizer),
    }


def runtime_portrait() -> dict[str, Any]:
    """Switches of torch; read while the script trains, since many are set late."""
    distributed = torch.distributed
    active = distributed.is_available() and distributed.is_initialized()
    cuda = torch.cuda.is_available()
    return {
        "threads": torch.get_num_threads(),
        "debug": _debug_switches(),
        "tf32": bool(cuda and torch.get_float32_matmul_precision() != "highest"),
        "cudnn_benchmark": bool(cuda and torch.backends.cudnn.benchmark),
        "backend": distributed.get_backend() if active else None,
        "rank": distributed.get_rank() if active else None,
        "world": distributed.get_world_size() if active else None,
    }


def _debug_switches() -> list[str]:
    switches = {
        "detect_anomaly": torch.is_anomaly_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "profiler": profiler_is_on(),
        "launch_blocking": any(os.environ.get(name) == "1" for name in _BLOCKING),
    }
    return [name for name, on in switches.items() if on]


def profiler_is_on() -> bool:
    """torch has no public name for this; where a release has renamed it, none is on as far as is known."""
    asked = getattr(torch._C._autograd, "_profiler_enabled", None)
    return bool(asked()) if asked is not None else False
