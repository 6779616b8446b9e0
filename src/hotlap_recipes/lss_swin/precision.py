"""Mixed precision on a processor: mmengine's own AmpOptimWrapper asks for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from mmengine.optim import OptimWrapper
from torch import nn


class CpuAmpOptimWrapper(OptimWrapper):  # type: ignore[misc]
    """Autocast and loss scale as in AmpOptimWrapper: `loss_scale` is a number, `dynamic`, or GradScaler's options."""

    def __init__(
        self, dtype: str, loss_scale: float | str | dict[str, Any] = "dynamic", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.dtype = getattr(torch, dtype)
        self.fixed_scale = loss_scale if isinstance(loss_scale, float) else None
        options = {"init_scale": self.fixed_scale} if self.fixed_scale else {}
        self.loss_scaler = torch.amp.GradScaler(
            "cpu", **(loss_scale if isinstance(loss_scale, dict) else options)
        )

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        self.loss_scaler.scale(loss).backward(**kwargs)  # type: ignore[no-untyped-call]
        self._inner_count += 1

    def step(self, **kwargs: Any) -> None:
        if self.clip_grad_kwargs:
            self.loss_scaler.unscale_(self.optimizer)
            self._clip_grad()
        self.loss_scaler.step(self.optimizer, **kwargs)
        self.loss_scaler.update(self.fixed_scale)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "loss_scaler": self.loss_scaler.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        rest = {name: each for name, each in state_dict.items() if name != "loss_scaler"}
        if state_dict.get("loss_scaler"):
            self.loss_scaler.load_state_dict(state_dict["loss_scaler"])
        super().load_state_dict(rest)

    @contextmanager
    def optim_context(self, model: nn.Module) -> Iterator[None]:
        with super().optim_context(model), torch.autocast("cpu", dtype=self.dtype):
            yield
