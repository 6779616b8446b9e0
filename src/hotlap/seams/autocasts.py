"""Lowers the precision of a framework that was built with one: all of them enter `torch.autocast`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

_KEPT: dict[str, torch.dtype] = {"bf16-mixed": torch.bfloat16}


class Autocasts:
    """From the first `lower_to` on, whoever enters autocast gets that precision; a GradScaler may go on scaling."""

    def __init__(self, wrap: Callable[..., Any]) -> None:
        self._wrap = wrap
        self._setting: str | None = None

    def lower_to(self, setting: str) -> None:
        if self._setting is None:
            self._wrap(torch.autocast, "__enter__", self._around)
        self._setting = setting

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def entered(context: Any, *args: Any, **kwargs: Any) -> Any:
            dtype = _KEPT.get(self._setting or "")
            if dtype is None:
                context._enabled = False
            else:
                context.fast_dtype = dtype
            return original(context, *args, **kwargs)

        return entered
