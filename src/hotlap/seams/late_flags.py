"""Whether a loss on a device is finite, known when the device has got that far, without waiting for it."""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

_MOST_WAITING = 64


class LateFlags:
    """Each flag is copied to the host beside the device's other work and read once its event has passed."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, torch.Tensor, Any]] = deque(maxlen=_MOST_WAITING)
        self.used = False

    def are_for(self, loss: torch.Tensor) -> bool:
        return loss.is_cuda

    def put(self, step: int, loss: torch.Tensor) -> None:
        self.used = True
        flag = torch.isfinite(loss.detach()).all()
        landed, event = self._sent(flag)
        self._waiting.append((step, landed, event))

    def arrived(self) -> list[tuple[int, bool]]:
        """Step and answer of those that the host can read by now, the oldest first."""
        answers = []
        while self._waiting and self._waiting[0][2].query():
            step, landed, _ = self._waiting.popleft()
            answers.append((step, bool(landed)))
        return answers

    def clear(self) -> None:
        self._waiting.clear()

    def _sent(self, flag: torch.Tensor) -> tuple[torch.Tensor, Any]:
        landed = torch.empty((), dtype=torch.bool, pin_memory=True)
        landed.copy_(flag, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        return landed, event
