"""What feeds training: learnt in the window, so that the phases after it can tell training's batches from others.

While batches are replayed, a loader that feeds training hands out the batch that it gave last, as often as it gives
one in a step. Whatever asks for more, as a validation does, gets real batches and comes to its end.
"""

from __future__ import annotations

import copy
import time
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import is_dataclass
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter, _DatasetKind

from hotlap.probe import boundary

_OFTEN = 0.5  # of the steps: a loader that gives batches in fewer of them does not feed training
_LONGEST_WAIT_S = 10.0
_LOOK_EVERY_S = 0.005


class Feed:
    """Counts batches by loader, from one step to the next. Only the training thread calls it."""

    def __init__(self) -> None:
        self.learns = True
        self.replays = False
        self.step_was_free = False  # all input of the last step was replayed
        # Gives batches in place of the last real one, or None for a real one.
        self.source: Callable[[], Any] | None = None
        self.on_other_batch: Callable[[], Any] | None = None  # called at each batch that is not training's
        # Of the loader that was replayed last, where others could take their place.
        self.own_workers: int | None = None
        self._steps = 0
        self._fed: Counter[int] = Counter()  # steps in which a loader gave batches
        self._most: Counter[int] = Counter()  # batches that a loader gave in one step
        self._given: Counter[int] = Counter()  # since the last step
        self._real = self._replayed = 0
        self._kept: dict[int, Any] = {}
        self._iterators: dict[int, Any] = {}

    def usual(self, loader: int) -> int:
        """The most batches of a step; 0 for a loader that does not feed training."""
        feeds = self._fed[loader] >= _OFTEN * self._steps > 0
        return self._most[loader] if feeds else 0

    def again(self, loader: int) -> Any:
        """A batch that costs nothing, or None."""
        if not self.replays or loader not in self._kept or self._given[loader] >= self.usual(loader):
            return None
        batch = self.source() if self.source is not None else _fresh(self._kept[loader])
        if batch is None:
            return None
        self._given[loader] += 1
        self._replayed += 1
        return batch

    def gave(self, loader: int, batch: Any, iterator: Any) -> None:
        """A loader has handed out a real batch."""
        self._given[loader] += 1
        self._real += 1
        if self._given[loader] > self.usual(loader):
            if self.on_other_batch is not None:
                boundary.attempt(self.on_other_batch)
        elif self.replays:
            self._kept[loader], self._iterators[loader] = _fresh(batch), iterator

    def opened(self) -> None:
        """A loader was iterated anew: a step with a start of workers has no free input."""
        self._real += 1

    def step_made(self) -> None:
        self.step_was_free = self._replayed > 0 and not self._real
        if self.learns:
            self._steps += 1
            for loader, count in self._given.items():
                self._fed[loader] += 1
                self._most[loader] = max(self._most[loader], count)
        self._given.clear()
        self._real = self._replayed = 0

    def wait_for_workers(self) -> bool:
        """Let workers fill their queues, after which they are idle; False where there is nothing to replay yet."""
        end = time.monotonic() + _LONGEST_WAIT_S
        for iterator in self._iterators.values():
            while _is_behind(iterator) and time.monotonic() < end:
                time.sleep(_LOOK_EVERY_S)
        return bool(self._kept)

    def only_iterator(self) -> Any:
        """What gave training its batches; None where several did, or none."""
        return next(iter(self._iterators.values())) if len(self._iterators) == 1 else None

    def forget(self) -> None:
        """Give batches and iterators free."""
        if self._iterators:
            self.own_workers = workers_of(self.only_iterator())
        self.replays, self.source = False, None
        self._kept.clear()
        self._iterators.clear()


def workers_of(iterator: Any) -> int | None:
    """Of torch's own loader over a dataset with indices, whose items any worker can make; None of all others."""
    of_torch = isinstance(iterator, _BaseDataLoaderIter) and iterator._dataset_kind == _DatasetKind.Map
    return int(iterator._num_workers) if of_torch else None


def _is_behind(iterator: Any) -> bool:
    outstanding = getattr(iterator, "_tasks_outstanding", 0)
    return bool(outstanding and iterator._data_queue.qsize() < outstanding)


def _fresh(batch: Any) -> Any:
    """New containers around the same tensors: scripts take entries out of a batch, or put some in."""
    if isinstance(batch, tuple):
        parts = [_fresh(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if type(batch) is list:
        return [_fresh(part) for part in batch]
    is_container = isinstance(batch, MutableMapping) or is_dataclass(batch)
    return copy.copy(batch) if is_container else batch
