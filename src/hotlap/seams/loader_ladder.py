"""Keeps a loader going when its workers die, hang or run out of shared memory.

Fresh workers go on at the same position: the same samples in the same order, none lost, none twice. The second time
there are fewer of them. Where nothing helps, the script gets the error that it would have got without hotlap.
"""

from __future__ import annotations

import functools
import sys
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pickle import UnpicklingError
from queue import Empty
from typing import Any

from torch.utils.data import _utils
from torch.utils.data.dataloader import _BaseDataLoaderIter, _MultiProcessingDataLoaderIter

from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_built import Loaders
from hotlap.seams.loader_deaths import Deaths
from hotlap.seams.loader_iterator import Given, Setup, Watch, abandon, load_alone, next_alone, rebuild
from hotlap.seams.loader_rungs import (
    MOST_IN_A_ROW,
    GoneError,
    HungError,
    Rung,
    Trouble,
    tell_lost_stream,
    told,
    trouble,
)
from hotlap.seams.record import StepDown

PATIENCE_S = 300.0
"""Without a batch from any worker before they are replaced: storage that stalls comes back within minutes."""
_LOOK_S = 0.05  # between looks at whether the workers are alive, while there is nothing to take
# A batch is fetched from its worker in several parts; one that dies in between leaves half a conversation.
_CUT_OFF = (ConnectionError, EOFError, FileNotFoundError, UnpicklingError)

Original = Callable[..., Any]


class Ladder:
    """Wraps torch's iterator with workers."""

    def __init__(self, fitter: Fitter, loaders: Loaders, patience_s: float) -> None:
        self._fitter, self._loaders, self._patience_s = fitter, loaders, patience_s
        self._rungs: weakref.WeakKeyDictionary[Any, Rung] = weakref.WeakKeyDictionary()
        self._deaths = Deaths()
        self._construct: Original = _MultiProcessingDataLoaderIter.__init__
        self.replaced = 0

    def install(self) -> None:
        kind, wrap = _MultiProcessingDataLoaderIter, self._fitter.wrap
        wrap(kind, "__init__", self._around_init)
        wrap(kind, "_next_index", self._around_next_index)
        wrap(kind, "_get_data", self._around_get_data)
        wrap(kind, "_next_data", self._around_next_data)
        wrap(kind, "_reset", self._around_reset)
        wrap(kind, "_shutdown_workers", self._around_shutdown)
        self._deaths.install(self._fitter)

    def rung(self, loader: Any) -> Rung:
        known = self._rungs.get(loader)
        if known is None or known.untouched:  # a framework may have set another number of workers since
            patience = loader.timeout or self._patience_s
            known = self._rungs[loader] = Rung(loader.num_workers, loader.prefetch_factor or 2, patience)
        return known

    def forget(self, loader: Any) -> None:
        self._rungs.pop(loader, None)

    def _around_init(self, original: Original) -> Original:
        self._construct = original

        @functools.wraps(original)
        def begun(iterator: Any, loader: Any) -> None:
            rung, setups = self.rung(loader), self._loaders.setups(loader)
            given = Given(loader, **_changes(rung, setups, loader.worker_init_fn))
            iterator._hotlap = Watch(given)
            iterator._hotlap_rung = rung
            self._deaths.watch(iterator)
            original(iterator, given)

        return begun

    def _around_next_index(self, original: Original) -> Original:
        @functools.wraps(original)
        def drawn(iterator: Any) -> Any:
            index = original(iterator)
            if (watch := _watch(iterator)) is not None:
                watch.drawn[iterator._send_idx] = index
            return index

        return drawn

    def _around_get_data(self, original: Original) -> Original:
        @functools.wraps(original)
        def got(iterator: Any) -> Any:
            watch = _watch(iterator)
            if watch is None or not watch.mendable:
                return original(iterator)
            rung, began = iterator._hotlap_rung, time.monotonic()
            while time.monotonic() - began < rung.patience_s:
                arrived, data = self._take(iterator, watch)
                if arrived:
                    return data
            raise HungError(f"no DataLoader worker gave anything for {rung.patience_s:.3g} s")

        return got

    def _take(self, iterator: Any, watch: Watch) -> tuple[bool, Any]:
        """As torch's `_try_get_data`, but looks more often and knows a conversation that was cut off."""
        try:
            with self._deaths.end_waiting(iterator):
                if watch.gone:
                    raise GoneError("a DataLoader worker died")
                return True, iterator._data_queue.get(timeout=_LOOK_S)
        except Empty:
            pass
        except _CUT_OFF as error:
            raise GoneError(f"a DataLoader worker died while it handed over: {error}") from error
        if any(worker.exitcode is not None for worker in iterator._workers):
            raise GoneError("a DataLoader worker died")
        if iterator._pin_memory and not iterator._pin_memory_thread.is_alive():
            raise GoneError("the thread that pins memory died, as it does when a worker is cut off")
        return False, None

    def _around_next_data(self, original: Original) -> Original:
        @functools.wraps(original)
        def given(iterator: Any) -> Any:
            watch = _watch(iterator)
            if watch is None:
                return original(iterator)
            while True:
                try:
                    if watch.alone is not None:
                        return next_alone(iterator, watch)
                    data = original(iterator)
                except StopIteration:
                    raise
                except Exception as error:
                    if not self._mend(iterator, watch, error):
                        _forget_arrived(iterator, watch)
                        raise
                else:
                    watch.tries = 0
                    _forget_arrived(iterator, watch)
                    return data

        return given

    def _around_reset(self, original: Original) -> Original:
        """Between two epochs of workers that persist."""

        @functools.wraps(original)
        def reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            watch = _watch(iterator)
            if watch is None or first_iter:
                original(iterator, loader, first_iter)
                return
            watch.drawn.clear()
            if watch.alone is not None:
                _BaseDataLoaderIter._reset(iterator, loader, first_iter)
                return
            if self._loaders.stale(loader):
                iterator._shutdown_workers()
                type(iterator).__init__(iterator, loader)
                return
            self._loaders.draw_as_if_started(loader, iterator)
            try:
                original(iterator, loader, first_iter)
            except Exception as error:
                if not self._mend(iterator, watch, error):
                    raise

        return reset

    def _around_shutdown(self, original: Original) -> Original:
        @functools.wraps(original)
        def ended(iterator: Any) -> None:
            watch = _watch(iterator)
            if watch is None or not hasattr(iterator, "_workers") or _leaving():
                original(iterator)
                return
            try:
                with self._deaths.end_waiting(iterator):
                    if watch.gone or any(worker.exitcode for worker in iterator._workers) or _mute(iterator):
                        raise GoneError("a DataLoader worker died, or cannot be told to end")
                    original(iterator)
            except GoneError:  # and may have taken a lock along that torch would wait for
                abandon(iterator)

        return ended

    def _mend(self, iterator: Any, watch: Watch, error: Exception) -> bool:
        if not watch.mendable:
            boundary.attempt(tell_lost_stream, iterator, error)
            return False
        kind = trouble(iterator, error)
        if kind is None:
            return False
        rung: Rung = iterator._hotlap_rung
        watch.tries += 1
        if watch.tries > MOST_IN_A_ROW:
            rung.patience_s = inf  # who only hangs is waited for, as without hotlap
            if kind is not Trouble.HUNG:
                return False
        before, why = replace(rung), told(iterator, kind, rung.patience_s)
        if watch.tries <= MOST_IN_A_ROW:
            rung.down(kind)
        self.replaced += 1
        self._renew(iterator, watch, rung)
        boundary.attempt(self._tell, before, rung, why, iterator)
        return True

    def _renew(self, iterator: Any, watch: Watch, rung: Rung) -> None:
        if not rung.alone:
            changes = _changes(rung, (), watch.given.worker_init_fn)
            if watch.tries >= MOST_IN_A_ROW:
                # One batch at a time: all that come before the one that kills its worker still arrive.
                changes |= {"num_workers": 1, "prefetch_factor": 1}
            try:
                rebuild(iterator, watch, self._construct, **changes)
                return
            except OSError as fault:  # no room for the queues themselves, or for another process
                boundary.record("loader ladder", fault)
                rung.alone = True
        load_alone(iterator, watch)

    def _tell(self, before: Rung, rung: Rung, why: str, iterator: Any) -> None:
        self._fitter.note("replaced_workers", self.replaced)
        at = f"at batch {iterator._num_yielded + 1} of this epoch"
        fresh = f"{rung.workers} fresh workers go on" if rung.workers > 1 else "a fresh worker goes on"
        if rung.alone:
            reason = f"{why}; the training process goes on by itself {at}"
            self._fitter.stepped_down(StepDown("num-workers", before.workers, 0, reason))
            return
        downs = [
            StepDown(knob, was, now, f"{why}; {fresh} {at}")
            for knob, was, now in (
                ("num-workers", before.workers, rung.workers),
                ("prefetch-factor", before.prefetch, rung.prefetch),
            )
            if was != now
        ]
        for down in downs:
            self._fitter.stepped_down(down)
        if not downs:
            print(f"hotlap: {why}; {fresh} {at}", file=sys.stderr, flush=True)


def _changes(rung: Rung, setups: tuple[Any, ...], init: Any) -> dict[str, Any]:
    first = (*setups, *rung.setups)
    return {
        "num_workers": rung.workers,
        "prefetch_factor": rung.prefetch,
        "worker_init_fn": Setup(first, init) if first else init,
    }


def _watch(iterator: Any) -> Watch | None:
    found: Watch | None = iterator.__dict__.get("_hotlap")
    return found


def _forget_arrived(iterator: Any, watch: Watch) -> None:
    for task in [task for task in watch.drawn if task not in iterator._task_info]:
        del watch.drawn[task]


def _mute(iterator: Any) -> bool:
    """Whether its queues no longer send: of garbage, Python ends them first, and torch waits 5 s for each worker."""
    closing = (getattr(queue, "_close", None) for queue in iterator._index_queues)
    return any(each is not None and not each.still_active() for each in closing)


def _leaving() -> bool:
    return _utils is None or _utils.python_exit_status is not False
