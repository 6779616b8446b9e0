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

import torch
from torch.utils.data import _utils, get_worker_info
from torch.utils.data.dataloader import (
    _BaseDataLoaderIter,
    _MultiProcessingDataLoaderIter,
    _SingleProcessDataLoaderIter,
)

from hotlap.errors import visible
from hotlap.plan.record import StepDown
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter
from hotlap.seams.loader_built import Loaders
from hotlap.seams.loader_iterator import (
    Given,
    IteratorState,
    Lean,
    Setup,
    abandon,
    forget_arrived,
    load_alone,
    make_one,
    next_alone,
    rebuild,
)
from hotlap.seams.loader_rungs import (
    MOST_IN_A_ROW,
    Deaths,
    GoneError,
    HungError,
    Rung,
    Trouble,
    tell_lost_stream,
    told,
    trouble,
)
from hotlap.seams.loader_skip import Lessened

PATIENCE_S = 300.0
"""Without a batch from any worker before they are replaced: storage that stalls comes back within minutes."""
_LOOK_S = 0.05  # between looks at whether the workers are alive, while there is nothing to take
# A batch is fetched from its worker in several parts; one that dies in between leaves half a conversation.
_CUT_OFF = (ConnectionError, EOFError, FileNotFoundError, UnpicklingError)

Original = Callable[..., Any]


class LoaderFallbacks:
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
        wrap(_SingleProcessDataLoaderIter, "_next_data", self._around_next_alone)
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
            watch = iterator._hotlap = IteratorState(given)
            iterator._hotlap_rung = rung
            self._deaths.watch(iterator)
            built = watch.built = self._loaders.built(loader)
            claims = watch.claims
            if built is None or claims is None:
                original(iterator, given)
                return
            boundary.attempt(self._loaders.begin, built, iterator)
            if not claims.own_workers:
                watch.lean = given._index_sampler = Lean(loader._index_sampler)
            original(iterator, given)
            iterator._index_sampler = loader._index_sampler
            if claims.own_workers:
                boundary.attempt(claims.begin_order, iterator._sampler_iter)

        return begun

    def _around_next_index(self, original: Original) -> Original:
        @functools.wraps(original)
        def drawn(iterator: Any) -> Any:
            watch = _watch(iterator)
            if watch is None:
                return original(iterator)
            if watch.lean is not None:
                if watch.lean.waits:
                    raise StopIteration
                watch.lean.asked += 1
            index = watch.drawn[iterator._send_idx] = original(iterator)
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

    def _take(self, iterator: Any, watch: IteratorState) -> tuple[bool, Any]:
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
                    if watch.lean is not None:
                        watch.lean.go_on(iterator, functools.partial(_begin_order, iterator, watch))
                    data = original(iterator)
                except StopIteration:
                    if watch.built is not None:
                        boundary.attempt(self._loaders.end, watch.built, iterator)
                    raise
                except Exception as error:
                    if self._mend(iterator, watch, error):
                        continue
                    failed = error
                else:
                    watch.tries = 0
                    if self._breaks_claim(iterator, watch, data):
                        continue
                    forget_arrived(iterator, watch)
                    return data
                try:
                    return self._made_here(iterator, watch, failed)
                finally:
                    del failed

        return given

    def _made_here(self, iterator: Any, watch: IteratorState, failed: Exception) -> Any:
        """What fails in a worker of the plan's: here it may be made, as where items start processes of their own, or
        the script meets its own error."""
        keys = watch.drawn.get(iterator._rcvd_idx - 1)
        forget_arrived(iterator, watch)
        if watch.lean is None or not watch.mendable or keys is None:
            raise failed
        batch = make_one(iterator, watch, keys)
        why = f"an item cannot be made in a worker ({type(failed).__name__}); batches are made as the script does"
        self._loaders.take_back(watch.built, why)
        load_alone(iterator, watch)
        return batch

    def _around_next_alone(self, original: Original) -> Original:
        """Without the workers that the script has."""

        @functools.wraps(original)
        def given(iterator: Any) -> Any:
            built = iterator.__dict__.get("_hotlap_built")
            try:
                data = original(iterator)
            except StopIteration:
                if built is not None:
                    boundary.attempt(self._loaders.end, built, iterator)
                boundary.attempt(compare_kept, iterator._dataset)
                raise
            if built is not None and built.claims is not None:
                reason = boundary.attempt(built.claims.seen_too_early)
                if reason:  # from the next epoch on with the script's own workers
                    self._loaders.take_back(built, reason)
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
            if self._loaders.stale(loader, iterator):
                iterator._shutdown_workers()
                type(iterator).__init__(iterator, loader)
                return
            if watch.lean is not None:
                watch.lean.anew()
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
                iterator._index_sampler = watch.lean
            else:
                self._loaders.draw_as_if_started(loader, iterator)
            try:
                original(iterator, loader, first_iter)
                iterator._index_sampler = loader._index_sampler
                if watch.claims is not None and watch.claims.own_workers:
                    boundary.attempt(watch.claims.begin_order, iterator._sampler_iter)
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
            if watch.built is not None:
                boundary.attempt(self._loaders.leave, watch.built)
            try:
                with self._deaths.end_waiting(iterator):
                    if watch.gone or any(worker.exitcode for worker in iterator._workers) or _mute(iterator):
                        raise GoneError("a DataLoader worker died, or cannot be told to end")
                    original(iterator)
            except GoneError:  # and may have taken a lock along that torch would wait for
                abandon(iterator)

        return ended

    def _breaks_claim(self, iterator: Any, watch: IteratorState, data: Any) -> bool:
        """Whether a batch is not what the script's own loader would make; then the next one is this one, made anew."""
        if watch.claims is None or isinstance(data, Lessened):
            return False
        task = iterator._rcvd_idx - 1
        own_workers = watch.claims.own_workers
        reason = boundary.attempt(watch.claims.broken, watch.drawn.get(task), data)
        if not reason:
            return False
        self._loaders.take_back(
            watch.built, f"{reason}; this batch and those after it are made as the script does"
        )
        if own_workers:
            rebuild(iterator, watch, self._construct)
        else:
            load_alone(iterator, watch)
        return True

    def _mend(self, iterator: Any, watch: IteratorState, error: Exception) -> bool:
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

    def _renew(self, iterator: Any, watch: IteratorState, rung: Rung) -> None:
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
            print(f"hotlap: {visible(why)}; {fresh} {at}", file=sys.stderr, flush=True)


def compare_kept(dataset: Any) -> None:
    """What the items of a cache depend on is compared when an epoch begins and when it ends."""
    kept = getattr(type(dataset), "hotlap_kept", None)
    if kept is not None and get_worker_info() is None:
        kept.at_bound()


def _changes(rung: Rung, setups: tuple[Any, ...], init: Any) -> dict[str, Any]:
    first = (*setups, *rung.setups)
    return {
        "num_workers": rung.workers,
        "prefetch_factor": rung.prefetch,
        "worker_init_fn": Setup(first, init) if first else init,
    }


def _begin_order(iterator: Any, watch: IteratorState) -> None:
    if watch.claims is not None:
        boundary.attempt(watch.claims.begin_order, iterator._sampler_iter)


def _watch(iterator: Any) -> IteratorState | None:
    found: IteratorState | None = iterator.__dict__.get("_hotlap")
    return found


def _mute(iterator: Any) -> bool:
    """Whether its queues no longer send: of garbage, Python ends them first, and torch waits 5 s for each worker."""
    closing = (getattr(queue, "_close", None) for queue in iterator._index_queues)
    return any(each is not None and not each.still_active() for each in closing)


def _leaving() -> bool:
    return _utils is None or _utils.python_exit_status is not False
