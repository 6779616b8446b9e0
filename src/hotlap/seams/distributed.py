"""Where a model is wrapped for several ranks: DistributedDataParallel, whoever builds it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch

from hotlap.ports.target import Distributed, Seam
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter


def install(fitter: Fitter) -> None:
    if fitter.wants(Seam.DISTRIBUTED) and torch.distributed.is_available():
        from torch.nn.parallel import DistributedDataParallel

        fitter.wrap(DistributedDataParallel, "__init__", functools.partial(_around, fitter))


def _around(fitter: Fitter, original: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def built(*args: Any, **kwargs: Any) -> None:
        bound = signature.bind(*args, **kwargs)
        boundary.attempt(fitter.offer, Seam.DISTRIBUTED, Distributed(bound.arguments), type(args[0]).__name__)
        original(*bound.args, **bound.kwargs)

    return built
