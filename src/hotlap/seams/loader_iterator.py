"""An iterator with workers that is taken down and built again in place, at the same position of its sampler.

The script and its framework hold the iterator, so it must stay the same object. torch's own constructor runs on it
once more, with a loader whose sampler first gives what was drawn but never arrived, then goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import Any

import torch
from torch.utils.data import _utils
from torch.utils.data.dataloader import _DatasetKind

_END_S = 5.0
_PINNING_S = 1.0


class Given:
    """A loader as its iterator sees it, with some attributes replaced.

    These are all that an iterator reads. To keep the loader itself would keep its workers alive after the loop.
    """

    _IterableDataset_len_called: Any
    _auto_collation: Any
    _dataset_kind: Any
    _index_sampler: Any
    collate_fn: Any
    dataset: Any
    drop_last: Any
    generator: Any
    in_order: Any
    multiprocessing_context: Any
    num_workers: Any
    persistent_workers: Any
    pin_memory: Any
    pin_memory_device: Any
    prefetch_factor: Any
    timeout: Any
    worker_init_fn: Any

    def __init__(self, loader: Any, **changed: Any) -> None:
        read = [name for name in Given.__annotations__ if hasattr(loader, name)]
        self.__dict__.update({name: getattr(loader, name) for name in read})
        self.__dict__.update(changed)


class Setup:
    """What a worker does first, before the script's own `worker_init_fn`. Can be pickled: workers may be spawned."""

    def __init__(self, first: Sequence[Callable[[], None]], own: Callable[[int], None] | None) -> None:
        self._first, self._own = tuple(first), own

    def __call__(self, worker: int) -> None:
        for act in self._first:
            act()
        if self._own is not None:
            self._own(worker)


def share_by_name() -> None:
    """In a worker: shared memory is handed over by name, which needs no open file for each tensor."""
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]


class Lean:
    """Asks a sampler as a loader without workers does, where the plan has added them.

    torch asks a sampler twice where it has workers, has its first output at once, and comes to its end before the loop
    does. Here it is asked once, has its first output when the loop wants a batch, and its end when the loop is there.
    """

    def __init__(self, sampler: Any) -> None:
        self.sampler, self.begun, self.at_end = sampler, False, False
        self.asked = 0
        self._output: Any = None
        try:
            self._length: float = len(sampler)
        except (TypeError, NotImplementedError):
            self._length = inf

    def __iter__(self) -> Iterator[Any]:
        if self._output is None:
            self._output = iter(self.sampler)
        return iter(self._output)

    def anew(self) -> None:
        """For another epoch, the sampler is asked now."""
        self.__init__(self.sampler)  # type: ignore[misc]
        iter(self)

    @property
    def waits(self) -> bool:
        """Whether the sampler may not be asked for more yet."""
        return not self.begun or (self.asked >= self._length and not self.at_end)

    def go_on(self, iterator: Any, first: Callable[[], None]) -> None:
        """The loop wants a batch."""
        if not self.begun:
            self.begun = True
            iterator._try_put_index()
            first()
            for _ in range(iterator._prefetch_factor * iterator._num_workers - 1):
                iterator._try_put_index()
        if self.asked >= self._length and iterator._rcvd_idx >= iterator._send_idx:
            self.at_end = True
            iterator._try_put_index()


@dataclass
class IteratorState:
    """What is known of one iterator: `drawn` holds the sampler's output by task, until its batch has arrived."""

    given: Given
    drawn: dict[int, Any] = field(default_factory=dict)
    gone: bool = False  # a worker has died, and nobody has looked after it yet
    lost_told: bool = False  # that this one cannot be taken up again
    tries: int = 0  # mended in a row, without a batch in between
    alone: Any = None  # a fetcher, where the training process loads by itself
    lean: Lean | None = None  # where the script's own loader has no workers
    built: Any = None  # what the plan claims of its loader, see loader_built

    @property
    def claims(self) -> Any:
        return self.built.claims if self.built is not None else None

    @property
    def mendable(self) -> bool:
        """The items of a stream that a dead worker had read are lost with it."""
        return bool(self.given._dataset_kind == _DatasetKind.Map)


class _Resumed:
    """A sampler that goes on: what was drawn and never arrived, then the rest. torch asks for its iterator twice."""

    def __init__(self, waiting: Sequence[Any], rest: Iterator[Any]) -> None:
        self._indices = chain(waiting, rest)

    def __iter__(self) -> Iterator[Any]:
        return self._indices


def rebuild(iterator: Any, watch: IteratorState, construct: Callable[..., None], **changed: Any) -> None:
    """With fresh workers at the same position. Draws no random number that the script would notice."""
    sampler, yielded = iterator._index_sampler, iterator._num_yielded
    resumed = _Resumed([watch.drawn[task] for task in sorted(watch.drawn)], iterator._sampler_iter)
    abandon(iterator)
    seeds = torch.Generator().manual_seed(iterator._base_seed & (2**63 - 1))
    if watch.lean is not None:
        watch.lean.asked -= len(watch.drawn)  # they are counted again
    watch.drawn, watch.gone = {}, False
    try:
        construct(iterator, Given(watch.given, generator=seeds, _index_sampler=resumed, **changed))
    except BaseException:
        # As if nothing had been tried: whoever loads alone now begins with what the workers were given.
        waiting = [watch.drawn[task] for task in sorted(watch.drawn)]
        iterator._sampler_iter = chain(waiting, iter(resumed))
        watch.drawn = {}
        abandon(iterator)
        raise
    finally:
        iterator._index_sampler, iterator._num_yielded = sampler, yielded


def load_alone(iterator: Any, watch: IteratorState) -> None:
    """From now on the training process makes the batches of this iterator by itself."""
    if watch.drawn:
        waiting = [watch.drawn[task] for task in sorted(watch.drawn)]
        iterator._sampler_iter = chain(waiting, iterator._sampler_iter)
        watch.drawn = {}
    abandon(iterator)
    watch.alone = _fetcher(watch.given)


def next_alone(iterator: Any, watch: IteratorState) -> Any:
    return _pinned(iterator, watch.alone.fetch(next(iterator._sampler_iter)))


def make_one(iterator: Any, watch: IteratorState, keys: Any) -> Any:
    """A batch as a loader without workers makes it."""
    return _pinned(iterator, _fetcher(watch.given).fetch(keys))


def _fetcher(given: Given) -> Any:
    return _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
        given._dataset_kind, given.dataset, given._auto_collation, given.collate_fn, given.drop_last
    )


def _pinned(iterator: Any, batch: Any) -> Any:
    if not iterator._pin_memory:
        return batch
    return _utils.pin_memory.pin_memory(batch, iterator._pin_memory_device)  # type: ignore[no-untyped-call]


def forget_arrived(iterator: Any, watch: IteratorState) -> None:
    for task in [task for task in watch.drawn if task not in iterator._task_info]:
        del watch.drawn[task]


def abandon(iterator: Any) -> None:
    """Ends the workers by force. A worker that was killed may have held a lock of every queue: none is touched."""
    if getattr(iterator, "_worker_pids_set", False):
        _utils.signal_handling._remove_worker_pids(id(iterator))  # type: ignore[attr-defined]
        iterator._worker_pids_set = False
    iterator._shutdown = True
    workers, iterator._workers = iterator._workers, []
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(timeout=_END_S)
    pinning = iterator.__dict__.pop("_pin_memory_thread", None)
    if pinning is not None:
        iterator._pin_memory_thread_done_event.set()
        pinning.join(timeout=_PINNING_S)  # a thread that reads half a message never ends
    queues = [*iterator._index_queues, *([] if pinning is not None else [iterator._worker_result_queue])]
    for queue in queues:
        with suppress(OSError, ValueError):
            queue.cancel_join_thread()
            queue.close()
    iterator._index_queues = []
    # What arrived too early is read again: workers that are forked now would hold its shared memory for ever.
    iterator._task_info = {}
