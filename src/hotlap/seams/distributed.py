"""Where a model is made ready for several ranks: DistributedDataParallel and SyncBatchNorm, whoever asks for them."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import torch

from hotlap.ports.target import Conversion, Distributed, Seam
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter


def install(fitter: Fitter) -> None:
    if fitter.wants(Seam.DISTRIBUTED) and torch.distributed.is_available():
        from torch.nn.parallel import DistributedDataParallel

        fitter.wrap(DistributedDataParallel, "__init__", functools.partial(_around_build, fitter))
        fitter.wrap(torch.nn.SyncBatchNorm, "convert_sync_batchnorm", _Conversions(fitter).around)


class _Conversions:
    """Torch's function calls itself for each part of a model; only the whole is offered."""

    def __init__(self, fitter: Fitter) -> None:
        self._fitter = fitter
        self._inside = False

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def convert_sync_batchnorm(kind: type, module: Any, *args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return original(kind, module, *args, **kwargs)
            target = Conversion(module, _ranks())
            boundary.attempt(self._fitter.offer, Seam.DISTRIBUTED, target, type(module).__name__)
            if target.leave_out:
                return module
            self._inside = True
            try:
                return original(kind, module, *args, **kwargs)
            finally:
                self._inside = False

        return convert_sync_batchnorm


def _ranks() -> int:
    if torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE") or 1)


def _around_build(fitter: Fitter, original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def built(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        boundary.attempt(fitter.offer, Seam.DISTRIBUTED, Distributed(bound.arguments), type(args[0]).__name__)
        original(*bound.args, **bound.kwargs)

    return built
