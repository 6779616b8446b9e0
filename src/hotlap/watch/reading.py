"""Figures on their way from a device to the host: nobody waits for them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Reading:
    """A copy that was begun. On the CPU it is there at once; from a GPU it comes when the GPU has got that far."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: Any = None
        if tensor.device.type == "cuda":
            self._values = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._values.copy_(tensor.detach(), non_blocking=True)
            cuda: Any = torch.cuda
            self._event = cuda.Event()
            self._event.record()
        else:
            self._values = tensor.detach()

    @property
    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def values(self) -> list[float]:
        """Ask only when it is ready, unless waiting is fine (at the end of training)."""
        if self._event is not None:
            self._event.synchronize()
        return [float(each) for each in self._values.reshape(-1).tolist()]
