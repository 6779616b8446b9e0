"""What feeds training: learnt in the window, so that the phases after it can tell training's batches from others.

While batches are replayed, a loader that feeds training hands out the batch that it gave last, as often as it gives
one in a step. Whatever asks for more, as a validation does, gets real batches and comes to its end.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, MutableMapping
from dataclasses import is_dataclass
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from hotlap.probe import boundary

_OFTEN = 0.5  # of the steps: a loader that gives batches in fewer of them does not feed training


class Feed:
    """Counts batches by loader, from one step to the next. Only the training thread calls it."""

    def __init__(self) -> None:
        self.learns = True
        self.replays = False
        self.step_was_free = False  # all input of the last step was replayed
        # Gives batches in place of the last real one, or None for a real one.
        self.source: Callable[[], Any] | None = None
        self.on_other_batch: Callable[[], Any] | None = None  # called at each batch that is not training's
        self.on_batch: Callable[[Any], Any] | None = None  # called with each batch of training, real or not
        self._steps = 0
        self._fed: Counter[int] = Counter()  # steps in which a loader gave batches
        self._most: Counter[int] = Counter()  # batches that a loader gave in one step
        self._given: Counter[int] = Counter()  # since the last step
        self._real = self._replayed = 0
        self._kept: dict[int, Any] = {}
        self._arguments: dict[int, dict[str, Any]] = {}

    def only_arguments(self) -> dict[str, Any] | None:
        """What the DataLoader that feeds training was built with; None where there are several, or none."""
        feeding = [held for number, held in self._arguments.items() if self.usual(number)]
        return feeding[0] if len(feeding) == 1 else None

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
        if self.on_batch is not None:
            boundary.attempt(self.on_batch, batch)
        return batch

    def gave(self, loader: int, batch: Any) -> None:
        """A loader has handed out a real batch."""
        self._given[loader] += 1
        self._real += 1
        if self._given[loader] > self.usual(loader):
            if self.on_other_batch is not None:
                boundary.attempt(self.on_other_batch)
            return
        if self.on_batch is not None:
            boundary.attempt(self.on_batch, batch)
        if self.replays:
            self._kept[loader] = _fresh(batch)

    def opened(self, number: int, loader: Any) -> None:
        """A loader was iterated anew: a step with a start of workers has no free input."""
        self._real += 1
        # Not the loader itself: scripts drop theirs, and its workers would stay with it.
        self._arguments[number] = boundary.attempt(arguments_of, loader) or {}

    def step_made(self) -> None:
        self.step_was_free = self._replayed > 0 and not self._real
        if self.learns:
            self._steps += 1
            for loader, count in self._given.items():
                self._fed[loader] += 1
                self._most[loader] = max(self._most[loader], count)
        self._given.clear()
        self._real = self._replayed = 0

    def forget(self) -> None:
        """Give batches free."""
        self.replays, self.source = False, None
        self._kept.clear()


def _fresh(batch: Any) -> Any:
    """New containers around the same tensors: scripts take entries out of a batch, or put some in."""
    if isinstance(batch, tuple):
        parts = [_fresh(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)
    if type(batch) is list:
        return [_fresh(part) for part in batch]
    is_container = isinstance(batch, MutableMapping) or is_dataclass(batch)
    return copy.copy(batch) if is_container else batch


# The arguments that would build a DataLoader like one that is there.


_AS_BUILT = (
    "dataset",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


def arguments_of(loader: Any) -> dict[str, Any]:
    """Those that differ from the defaults may differ in form: samplers that torch made of `shuffle` become it again."""
    arguments = {name: getattr(loader, name) for name in _AS_BUILT if hasattr(loader, name)}
    return {**arguments, **_batching(loader)}


def whole_signature(arguments: dict[str, Any]) -> dict[str, Any]:
    """With what they leave out, as the loader seam offers arguments to knobs."""
    parameters = inspect.signature(inspect.unwrap(DataLoader.__init__)).parameters.values()
    defaults = {
        each.name: each.default
        for each in parameters
        if each.name not in ("self", "dataset") and each.default is not inspect.Parameter.empty
    }
    return {**defaults, **arguments}


def _batching(loader: Any) -> dict[str, Any]:
    """The arguments that made the loader's samplers."""
    if loader.batch_size is None and loader.batch_sampler is not None:
        return {"batch_sampler": loader.batch_sampler}
    cut = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if isinstance(loader.dataset, IterableDataset):
        return cut
    sampler, dataset = loader.sampler, loader.dataset
    if type(sampler) is SequentialSampler and sampler.data_source is dataset:
        return cut
    usual = type(sampler) is RandomSampler and sampler.data_source is dataset and not sampler.replacement
    if usual and sampler._num_samples is None and sampler.generator is loader.generator:
        return {**cut, "shuffle": True}
    return {**cut, "sampler": sampler}
