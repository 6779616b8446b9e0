"""A loader of the script's that ours has taken over gives what it would have given, and asks its sampler when it would.

Without workers of its own it makes each batch when the loop wants it, and asks its sampler then. With workers it has
the first of the sampler's output at once, and its dataset as it was when the epoch began; where they persist, as it was
when the first one began.
"""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader

from hotlap.data.loader_fetch import FetchSpec, fetch_of
from hotlap.sameness.breach import Breach, declare, items_changed, order_changed
from hotlap.sameness.claim import AT_ONCE, TOO_LONG, Claim, is_listed, length_of, of_sampler
from hotlap.sameness.dependencies import Dependencies

KNOB = "loader"


class TakenOver:
    """What is known of the script's loader. `lower` is called with a reason where it can only be audited."""

    def __init__(
        self,
        loader: DataLoader[Any],
        source: FetchSpec,
        volatile: Sequence[str],
        lower: Callable[[str], None],
    ) -> None:
        self.own_workers = loader.num_workers
        self._persist = bool(self.own_workers and loader.persistent_workers)
        fetch = fetch_of(source)
        walk = partial(Dependencies, source.dataset, source.collate, volatile=volatile)
        sampler, self._listed = loader._index_sampler, False
        self._length = length_of(sampler)
        order = partial(self._walk_order, sampler, source.dataset)
        self._order = Claim(KNOB, order, _nothing, every_epoch=True, length=self._length)
        self._order_watched = False
        self._claim: Claim | None = Claim(
            KNOB, walk, lambda keys: fetch(keys).data, every_epoch=self._persist, length=self._length
        )
        self._lower = lower
        self._passes = weakref.WeakSet[Any]()
        self._given, self._order_due = 0, False
        atexit.register(_end_with_script, weakref.ref(self))

    def _walk_order(self, sampler: Any, dataset: Any) -> Dependencies:
        return of_sampler(sampler, dataset, listed=self._listed)

    def begin(self, iterator: Any, keys: Iterator[Any]) -> Iterator[Any]:
        """An iterator begins an epoch."""
        self.leave()
        if any(each._num_yielded < self._length for each in self._passes if each is not iterator):
            self._lower(AT_ONCE)
        self._passes.add(iterator)
        self._order_watched, self._order_due, self._keys, self._given = False, False, keys, 0
        if not self.own_workers:
            return self._drawn(keys)
        self._begin()
        first = list(islice(keys, 1))
        self._begin_order()
        return chain(first, keys)

    def _drawn(self, keys: Iterator[Any]) -> Iterator[Any]:
        """A sampler may draw all of its order when it is asked for the first: it is watched from there on."""
        for each in keys:
            if self._order_due:
                self._order_due = False
                self._begin_order()
            yield each

    def _begin_order(self) -> None:
        """From here on the sampler is asked at another time than the script's loader would ask it."""
        self._listed = is_listed(self._keys)
        self._order.forget()
        self._order.begin(at=self._given)
        self._order_watched = True

    def start_workers(self) -> None:
        """They have the dataset as it is now."""
        if not self.own_workers:
            self.leave()
            self._begin()
            self._order_due = True

    def _begin(self) -> None:
        if self._claim is None:
            return
        changed = self._claim.begin(at=self._given)
        if self._claim.only_audited:
            self._lower(TOO_LONG)
        if changed and self._persist:
            made = f"the script changed {changed}, which its own workers, which persist, would not have seen"
            declare(Breach(KNOB, made))
            self._claim = None

    def may_end(self, asked: int) -> bool:
        """Whether the sampler has given all; only the loop, when it is there, may come to its end."""
        return not self.own_workers and asked >= self._length

    def broken(self, keys: Any, batch: Any, beside: bool) -> str:
        """Why a batch is not what the script's loader would give; empty where it is. `beside`: a worker made it."""
        self._given += 1
        claim = self._claim
        if claim is None:
            return ""
        if not (beside or self.own_workers):
            if what := self._order.made_in_time() if self._order_watched else "":
                self._declare_order(what)
            if what := claim.made_in_time():
                self._declare_items(what, claim.missed)
            return ""
        if self._order_watched and (what := self._order.moved()):
            self._declare_order(what)
            return f"the script changes {what} while the epoch runs"
        if not self.own_workers:
            return claim.broken(keys, batch)
        if what := claim.moved():
            self._declare_items(what, claim.missed + 1)
            self._claim = None
            return ""
        due = claim.due() and not claim.changed()
        return claim.differs(keys, batch) if due else ""

    def end(self, iterator: Any) -> None:
        """The loop has had all batches of an epoch."""
        self._passes.discard(iterator)
        self._order_watched = False  # a sampler may draw at its own end
        if self._claim is None:
            return
        if what := self._claim.end():
            self._declare_items(what, self._claim.missed)
        if self._claim.only_audited:
            self._lower(TOO_LONG)

    def leave(self) -> None:
        """The loop may have left an epoch before its end."""
        if self._claim is None:
            return
        reason = self._order.left() if self._order_watched else ""
        if reason := reason or self._claim.left():
            self._lower(reason)

    def _declare_order(self, what: str) -> None:
        declare(order_changed(KNOB, what))
        self._order_watched = False

    def _declare_items(self, what: str, batches: int) -> None:
        declare(items_changed(KNOB, what, batches, bool(self.own_workers)))


def _end_with_script(taken_over: weakref.ref[TakenOver]) -> None:
    """Iterators that the script still holds: no batch stays unchecked."""
    if (held := taken_over()) is not None:
        held.leave()


def _nothing(keys: Any) -> Any:
    raise NotImplementedError
