"""In a training process that `hotlap run --watch` has started: monitors beside an unmodified script."""

from __future__ import annotations

import atexit
import functools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hotlap.probe import boundary
from hotlap.seams.patches import PatchStack
from hotlap.watch.training import TrainingMonitor

_ASK_UNTIL = 3  # steps: by then a trainer knows how many there will be
_MOST_LENGTHS = 8


def install(folder: Path) -> TrainingMonitor:
    """Called once torch is imported; the monitors live as long as the process."""
    monitor = _Beside()
    monitor.__enter__()
    watched = _Loaders(monitor)
    PatchStack().wrap(DataLoader, "__iter__", watched.around)
    pid = os.getpid()
    atexit.register(
        lambda: boundary.attempt(monitor.close) if os.getpid() == pid and folder.is_dir() else None
    )
    return monitor


class _Beside(TrainingMonitor):
    """Also finds out how long the training will be."""

    def _seen(self, loss: Tensor | float | None, parameters: Callable[[], Sequence[Tensor]]) -> None:
        super()._seen(loss, parameters)
        if self.steps <= _ASK_UNTIL and "total" not in self.notes:
            total = boundary.attempt(framework_total, sys._getframe(1))
            if total:
                self.notes["total"] = total


class _Loaders:
    """Epochs, by the length of their loader: how often one was begun, and at which step the last time.

    Not by loader: many scripts build a new one for each epoch.
    """

    def __init__(self, monitor: TrainingMonitor) -> None:
        self._monitor = monitor
        self._epochs: dict[str, dict[str, int]] = monitor.notes.setdefault("epochs", {})

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begun(loader: Any) -> Any:
            iterator = original(loader)
            if torch.is_grad_enabled():  # validation is mostly without
                boundary.attempt(self._note, loader)
            return iterator

        return begun

    def _note(self, loader: Any) -> None:
        length = _length(loader)
        if length is None or (len(self._epochs) >= _MOST_LENGTHS and str(length) not in self._epochs):
            return
        epoch = self._epochs.setdefault(str(length), {"begun": 0, "at_step": 0})
        epoch["begun"] += 1
        epoch["at_step"] = self._monitor.steps


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except TypeError:  # a stream has no length
        return None


# How long a training will be, as its framework knows it.


_MOST_FRAMES = 200


def framework_total(frame: FrameType | None) -> int | None:
    """Optimizer steps of the whole training, from the trainer on the stack; None in a loop of one's own."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return None
        owner = frame.f_locals.get("self")
        found = _total_of(owner) if owner is not None else None
        if found is not None:
            return found
        frame = frame.f_back
    return None


def _total_of(owner: Any) -> int | None:
    package = type(owner).__module__.partition(".")[0]
    kind = type(owner).__name__
    total: Any = None
    if package in ("lightning", "pytorch_lightning") and kind == "Trainer":
        total = owner.estimated_stepping_batches
    elif "transformers.trainer" in sys.modules and isinstance(
        owner, sys.modules["transformers.trainer"].Trainer
    ):
        total = owner.state.max_steps
    elif package == "mmengine" and hasattr(owner, "max_iters"):
        total = owner.max_iters
    usable = isinstance(total, int | float) and math.isfinite(total) and total > 0
    return int(total) if usable else None
