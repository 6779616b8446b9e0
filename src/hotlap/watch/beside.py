"""In a training process that `hotlap run --watch` has started: monitors beside an unmodified script."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from hotlap.probe import boundary
from hotlap.seams.patches import Patches
from hotlap.watch.totals import framework_total
from hotlap.watch.training import TrainingMonitor

_ASK_UNTIL = 3  # steps: by then a trainer knows how many there will be
_MOST_LENGTHS = 8


def install(folder: Path) -> TrainingMonitor:
    """Called once torch is imported; the monitors live as long as the process."""
    monitor = _Beside()
    monitor.__enter__()
    watched = _Loaders(monitor)
    Patches().wrap(DataLoader, "__iter__", watched.around)
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
