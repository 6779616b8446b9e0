"""What is known of the loaders that were built under a plan, by loader."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.utils.data.dataloader import _DatasetKind

from hotlap.probe import boundary
from hotlap.sameness.breach import declare, items_changed, order_changed
from hotlap.sameness.claim import AT_ONCE, TOO_LONG, Claim, is_listed, length_of, of_sampler
from hotlap.sameness.dependencies import Dependencies
from hotlap.seams.fitter import Fitted, Fitter
from hotlap.seams.loader_look import NOTHING_KNOWN, WorkerEffects

_OF_WORKERS = ("num_workers", "prefetch_factor", "persistent_workers")
COLLATES_OTHERWISE = "the script has put another collate function into its loader"
_GIVEN_TO_WORKERS = ("collate_fn", "worker_init_fn")  # what a script may replace in a loader that is built


@dataclass(eq=False)
class LoaderRecord:
    """Of one loader. Its iterators keep it: a script may hold on to one and let its loader go."""

    loader: Callable[[], Any]  # weakly
    own: dict[str, Any]  # of the arguments, those that the plan changed, as the script gave them
    fitted: Sequence[Fitted] = ()
    setups: tuple[Callable[[], None], ...] = ()
    claims: Claims | None = None
    collate: Any = None  # as it was built
    passes: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)  # iterators under way


class Loaders:
    """Loaders keep their own arguments, so that what does not work can be taken back."""

    def __init__(self, fitter: Fitter) -> None:
        self._fitter = fitter
        self._all = weakref.WeakSet[LoaderRecord]()
        atexit.register(self._end_with_script)
        self._known: weakref.WeakKeyDictionary[Any, LoaderRecord] = weakref.WeakKeyDictionary()
        self._of_dataset: dict[int, tuple[Callable[[], Any], dict[str, Any], dict[str, Any]]] = {}

    def keep(
        self,
        loader: Any,
        own: dict[str, Any],
        fitted: Sequence[Fitted],
        setups: Sequence[Callable[[], None]],
        seen: WorkerEffects | None = None,
    ) -> None:
        known = self._known[loader] = LoaderRecord(weakref.ref(loader), own, tuple(fitted), tuple(setups))
        known.collate = loader.collate_fn
        put = {name: getattr(loader, name) for name in _OF_WORKERS}
        self._of_dataset[id(loader.dataset)] = _weakly(loader.dataset), own, put
        known.claims = boundary.attempt(self._claims, loader, own, seen)
        self._all.add(known)

    def _claims(self, loader: Any, own: dict[str, Any], seen: WorkerEffects | None) -> Claims | None:
        workers, persist = own.get("num_workers", loader.num_workers), "persistent_workers" in own
        unchanged = workers == loader.num_workers and not persist and "prefetch_factor" not in own
        if unchanged or loader._dataset_kind != _DatasetKind.Map or not (workers or loader.num_workers):
            return None
        return Claims(loader, own.get("dataset", loader.dataset), workers, persist, seen)

    def before_plan(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """A framework that builds a loader anew gives it the arguments of the first, which the plan has changed: those
        that the script had given."""
        dataset, own, put = self._of_dataset.get(id(arguments["dataset"]), (_nothing, {}, {}))
        if dataset() is not arguments["dataset"]:
            return {}
        ours = {
            name: own[name]
            for name in _OF_WORKERS
            if name in own and (arguments[name] or 0) == (put[name] or 0)
        }
        if ours.get("num_workers") == 0:
            ours |= {"prefetch_factor": None, "persistent_workers": False}
        return ours

    def collates_otherwise(self, loader: Any) -> None:
        """Where the script has put another collate function into its loader, that gets the script's own items, and
        torch makes the batches."""
        known = self._known.get(loader)
        if known is None or loader.collate_fn is known.collate:
            return
        known.collate = loader.collate_fn
        loader.__dict__.pop("_get_iterator", None)
        loader.__dict__.pop("explain", None)
        gone = {"loader"}
        if "collate_fn" in known.own:
            gone |= {"batched-fetch", "max-length", "trim-padding"}
            if "dataset" in known.own:  # which gives whole batches
                gone.add("cache-dataset")
                loader.__dict__["dataset"] = known.own["dataset"]
        for each in known.fitted:
            if each.acts and each.knob in gone:
                self._fitter.record(Fitted(each.knob, each.setting, False, each.place, COLLATES_OTHERWISE))

    def built(self, loader: Any) -> LoaderRecord | None:
        return self._known.get(loader)

    def begin(self, known: LoaderRecord, iterator: Any) -> str:
        """An iterator begins an epoch: what batches depend on that has changed since the last one began."""
        if known.claims is None:
            return ""
        others = [each for each in known.passes if each is not iterator]
        reason = known.claims.left()
        if not reason and not all(map(known.claims.all_given, others)):
            reason = AT_ONCE
        known.passes.add(iterator)
        changed = known.claims.begin(known.loader())
        if reason or known.claims.items.only_audited:
            self._lower(known, reason or TOO_LONG)
        return changed

    def end(self, known: LoaderRecord, iterator: Any) -> None:
        """The loop has had all batches of an epoch."""
        known.passes.discard(iterator)
        if known.claims is not None:
            known.claims.end()
            if known.claims.items.only_audited:
                self._lower(known, TOO_LONG)

    def leave(self, known: LoaderRecord) -> None:
        """An iterator goes, maybe before its end."""
        if known.claims is not None and (reason := known.claims.left()):
            self._lower(known, reason)

    def _end_with_script(self) -> None:
        """Iterators that the script still holds: no batch stays unchecked."""
        for known in list(self._all):
            boundary.attempt(self.leave, known)

    def _lower(self, known: LoaderRecord, reason: str) -> None:
        for each in known.fitted:
            if each.knob.replace("-", "_") in _OF_WORKERS:
                self._fitter.lower(each.knob, each.place, reason)

    def setups(self, loader: Any) -> tuple[Callable[[], None], ...]:
        known = self._known.get(loader)
        return known.setups if known is not None else ()

    def changed_workers(self, loader: Any) -> bool:
        known = self._known.get(loader)
        return known is not None and any(name in known.own for name in _OF_WORKERS)

    def take_back(self, known: LoaderRecord, reason: str) -> None:
        """Its workers are the script's own again, where it is still there."""
        known.claims = None
        if (loader := known.loader()) is not None:
            for name in _OF_WORKERS:
                if name in known.own:
                    loader.__dict__[name] = known.own.pop(name)
            if not loader.num_workers:
                loader.prefetch_factor = None
            elif loader.prefetch_factor is None:
                loader.prefetch_factor = 2  # as the constructor does
        names = {name.replace("_", "-") for name in _OF_WORKERS}
        for each in known.fitted:
            if each.knob in names:
                self._fitter.record(Fitted(each.knob, each.setting, False, each.place, reason))

    def stale(self, loader: Any, iterator: Any) -> bool:
        """Whether workers that the plan made persist do not know what the script has done to its dataset since."""
        known = self._known.get(loader)
        if known is None or "persistent_workers" not in known.own or known.claims is None:
            return False
        changed = self.begin(known, iterator)
        for each in known.fitted if changed else ():
            if each.knob == "persistent-workers":
                reason = f"the script changes {changed} between epochs, so its workers are started anew"
                self._fitter.record(Fitted(each.knob, each.setting, False, each.place, reason))
        return bool(changed)

    def persists(self, loader: Any) -> bool:
        known = self._known.get(loader)
        return known is not None and "persistent_workers" in known.own

    def draw_as_if_started(self, loader: Any, iterator: Any) -> None:
        """Starting workers draws a seed: those that the plan made persist must not shift the script's numbers."""
        if self.persists(loader):
            iter(iterator._index_sampler)  # some samplers draw as soon as they are asked
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)


def _nothing() -> None:
    return None


def _weakly(value: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(value)
    except TypeError:  # a list, say: then nothing is inherited
        return _nothing


# What a plan claims of a loader whose workers it has changed, and what is done where that does not hold.


class Claims:
    """Of one loader. `own_workers`: what the script has given it."""

    def __init__(
        self, loader: Any, dataset: Any, own_workers: int, persist: bool, seen: WorkerEffects | None
    ) -> None:
        self.own_workers, self.persist = own_workers, persist
        seen = seen or NOTHING_KNOWN
        self.same = seen.same  # nothing was seen to differ: then it is held to that
        self.only_order = (
            own_workers == loader.num_workers and not persist
        )  # it is asked further ahead, no more
        knob = "persistent-workers" if persist else "prefetch-factor" if self.only_order else "num-workers"
        knob = "num-workers" if own_workers != loader.num_workers else knob
        walk = partial(Dependencies, dataset, loader.collate_fn, volatile=seen.volatile)
        sampler, self._listed = loader._index_sampler, False
        length = length_of(sampler)
        self.items = Claim(knob, walk, _maker(loader), every_epoch=persist, length=length)
        order = partial(self._walk_order, sampler, dataset)
        self.order = Claim(knob, order, _no_reason, every_epoch=True, length=length)
        self._order_watched = False
        self._given: dict[str, Any] = {}  # by the first epoch: frameworks put something in before
        self._length = length
        # Workers of the plan's and of the script's own have the dataset as it was when the epoch began.
        self._alike = bool(own_workers and loader.num_workers)

    def _walk_order(self, sampler: Any, dataset: Any) -> Dependencies:
        return of_sampler(sampler, dataset, listed=self._listed)

    def all_given(self, iterator: Any) -> bool:
        """Whether the loop has had all batches of it, though it never asked for the end."""
        return bool(iterator._num_yielded >= self._length)

    def begin(self, loader: Any) -> str:
        """Workers are started, or go on with another epoch: what has changed since the last one."""
        self._order_watched = False
        changed = self.items.begin() if (self.same or self.persist) and not self.only_order else ""
        return changed or self._replacement(loader)

    def _replacement(self, loader: Any) -> str:
        """What the script has put into its loader since its first epoch: workers that persist have what was there. From
        then on they are started in each epoch, as nothing watches what the other function depends on."""
        if not self.persist or loader is None:
            return ""
        now = {name: getattr(loader, name, None) for name in _GIVEN_TO_WORKERS}
        self._given = self._given or now
        replaced = [name for name, first in self._given.items() if now[name] is not first]
        self._given = self._given | dict.fromkeys(replaced, _nothing)
        return f"the {replaced[0]} of its loader" if replaced else ""

    def begin_order(self, sampler_iter: Any) -> None:
        """The sampler has given its first output. Of one that has drawn up its list by then, only the size of batches
        can change what it gives."""
        if self.same:
            self._listed = is_listed(sampler_iter)
            self.order.forget()
            self.order.begin()
            self._order_watched = True

    def broken(self, keys: Any, batch: Any) -> str:
        """Why a batch of workers is not what the script's own loader would make; empty where it is."""
        if not self.same or keys is None:
            return ""
        if what := self._order_moved():
            return what
        if self.only_order:
            return ""
        if self.own_workers:  # they would not see either what the script changes before the next epoch
            due = self.items.due() and not self.items.changed()
            return self.items.differs(keys, batch) if due else ""
        return self.items.broken(keys, batch)

    def _order_moved(self) -> str:
        if not self._order_watched or not (what := self.order.moved()):
            return ""
        self._declare_order(what)
        return f"the script changes {what} while the epoch runs"

    def _declare_order(self, what: str) -> None:
        declare(order_changed(self.order.knob, what))
        self._order_watched = False

    def _declare_items(self, what: str, batches: int) -> None:
        declare(items_changed(self.items.knob, what, batches, bool(self.own_workers)))

    def end(self) -> None:
        """The loop has had all batches of an epoch."""
        self._order_watched = False  # a sampler may draw at its own end
        if self.same and not self._alike and (what := self.items.end()):
            self._declare_items(what, self.items.missed)

    def left(self) -> str:
        """The loop may have left the epoch early: why it is not known that its last batches were right."""
        if self._order_watched and (reason := self.order.left()):
            return reason
        return self.items.left() if self.same and not self._alike else ""

    def seen_too_early(self) -> str:
        """Without the workers that the script has: what it changes reaches items before the next epoch."""
        if what := self._order_moved():
            return what
        what = self.items.moved() if self.same else ""
        if what:
            self._declare_items(what, self.items.missed + 1)
        return what


def _maker(loader: Any) -> Callable[[Any], Any]:
    fetcher = _DatasetKind.create_fetcher(  # type: ignore[no-untyped-call]
        loader._dataset_kind, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
    )
    make: Callable[[Any], Any] = fetcher.fetch
    return make


def _no_reason(keys: Any) -> Any:
    raise NotImplementedError
