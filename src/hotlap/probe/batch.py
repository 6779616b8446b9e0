"""Reads off a batch how many samples it holds and, where lengths or a padding mask are visible, how many tokens.

Batches hide their tensors in tuples, dicts, dataclasses and containers of frameworks; the way to the first tensor is
found once and then followed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from hotlap.probe import marks
from hotlap.probe.parts import Way, follow, path_to_tensor
from hotlap.probe.tokens import TokenCounter

_TRIED = 8  # batches whose tokens are all counted: then it is known what that costs
_SELDOM = 8  # batches between two counts where counting all of them would cost too much
_SHARE = 0.005  # of the time between two batches that counting may take
_MOST_SEARCHES = 32  # where batches differ or hold no tensor: each is a walk through all of a batch


class BatchReader:
    """Writes down the facts of the batches of one loader."""

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self._path: Way | None = None
        self._searches = _MOST_SEARCHES
        self.batches = 0
        self._tokens = TokenCounter()
        self._every = 1
        self._began = 0
        self._cost = sys.maxsize  # of the cheapest count: the first ones warm up

    def read(self, batch: Any, append: Callable[[int], None]) -> None:
        append(self.loader << 8 | marks.LOADER_ID)
        size = self._size(batch)
        if size >= 0:
            append(size << 8 | marks.SAMPLES)
        self.batches += 1
        if not self._tokens.hopeless and (self.batches - 1) % self._every == 0:
            self._count(batch, append)

    def _count(self, batch: Any, append: Callable[[int], None]) -> None:
        """A throughput in tokens is only as good as its count, so every batch is counted where that is cheap."""
        began = perf_counter_ns()
        counted = self._tokens.count(batch)
        ended = perf_counter_ns()
        self._began = self._began or began
        self._cost = min(self._cost, ended - began)
        if self.batches == _TRIED + 1:
            self._every = 1 if self._cost <= _SHARE * (began - self._began) / _TRIED else _SELDOM
        if counted is not None:
            append(counted[0] << 8 | marks.TOKENS)
            append(counted[1] << 8 | marks.PADDED)

    def _size(self, batch: Any) -> int:
        tensor = follow(batch, self._path) if self._path is not None else None
        if tensor is None and self._searches:
            self._searches -= 1
            self._path = path_to_tensor(batch)
            tensor = follow(batch, self._path) if self._path is not None else None
        if tensor is None:
            return len(batch) if isinstance(batch, list | tuple) else -1
        return tensor.shape[0] if tensor.dim() else 1
