"""A claim while it trains: batches that others make ahead are those that the script's own loader would make now.

Workers have the dataset as it was when they were started. What its items depend on is compared before a batch is handed
over, as often as a share of the time allows, and at random moments a batch is made again here and compared.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable
from math import inf
from typing import Any

from hotlap.sameness import random_states
from hotlap.sameness.audit import SHARE, Audit, own_time
from hotlap.sameness.breach import Breach, declare
from hotlap.sameness.content import same
from hotlap.sameness.dependencies import Dependencies

TOO_LONG = "what its items depend on takes over 1 % of an epoch to compare, so batches are audited at random"
AT_ONCE = "several passes over it were under way at once, of which the latest alone is compared"
_OF_EPOCH = 0.01  # that comparing all of it when an epoch begins or ends may take
_LONGEST_S = 0.02  # of one look: what takes longer is compared piece by piece


class Claim:
    """For one loader. `state` walks over what batches depend on; `make(keys)` makes one as the script's loader does.
    `length`: batches of an epoch. Before the last one is handed over all is compared: a loop that counts never asks for
    the end.

    `every_epoch`: all of it is compared when an epoch begins, whatever that takes; else it is given up where it takes
    more than its share of an epoch, and audits alone are left (`only_audited`): whoever claims bit-equality must then
    claim less.
    """

    def __init__(
        self,
        knob: str,
        state: Callable[[], Dependencies],
        make: Callable[[Any], Any],
        *,
        every_epoch: bool = False,
        length: float = inf,
    ) -> None:
        self.knob, self._walk, self._make, self._every_epoch = knob, state, make, every_epoch
        self._length = length
        self.missed = (
            0  # batches that were handed over since the last comparison that agreed, when `moved` finds one
        )
        self._audit = Audit()
        self._suspect = (
            False  # what changed between epochs may have made items draw: the next batch is audited
        )
        self._state: Dependencies | None = None
        self._full_s = self._began = self._not_before = 0.0
        self.only_audited = False  # what batches depend on takes too long to compare
        self._batches = self._agreed = 0
        self._pass: tuple[int, int] | None = None  # a look in rotation: batches and parts when it began

    def begin(self, *, at: int = 0) -> str:
        """After `at` batches of an epoch everything counts as it is now; what has changed since it was called last."""
        now = time.perf_counter()
        self.only_audited |= self._too_dear() and self._state is not None and not self._every_epoch
        self._began, self._not_before, self._pass = now, now, None
        self._batches = self._agreed = at
        if self.only_audited:
            self._state = None
            return ""
        looked = own_time()
        what = "" if self._state is None else self._state.changed()
        self._suspect = bool(what)
        if self._state is None or what:
            self._state = self._walk()
            looked = own_time()
            self._state.changed()
        self._ended = own_time()
        self._full_s = self._ended - looked
        return what

    def changed(self) -> str:
        """What has changed since the epoch began, all of it compared now."""
        return "" if self._state is None else self._state.changed()

    def broken(self, keys: Any, batch: Any) -> str:
        """Why this batch and those after it must be made anew; empty where it may be handed over.

        Where earlier ones may have been wrong, that is declared.
        """
        if what := self.moved():
            if self.missed:
                made = f"the script changed {what} while batches were made ahead"
                declare(Breach(self.knob, made, self.missed))
            return f"the script changes {what} while the epoch runs"
        return self.differs(keys, batch) if self.due() else ""

    def made_in_time(self) -> str:
        """A batch that the script's own loader would make in the same way at the same moment; where it is the last one,
        what has changed since others were made ahead, `missed` of them at most."""
        self.missed = self._batches - self._agreed
        self._batches += 1
        if not self.missed:
            self._agreed = self._batches
        elif self._state is not None and self._batches == self._length:
            return self._looked(self._state)
        return ""

    def forget(self) -> None:
        """What was walked is another thing now."""
        self._state = None

    def end(self) -> str:
        """The epoch has ended: what has changed meanwhile, after at most `missed` batches. Where comparing takes more
        than its share of the epoch, audits alone are left."""
        self.missed = self._batches - self._agreed
        if self._state is None or not self.missed:
            return ""
        self._agreed = self._batches
        self.only_audited |= self._too_dear() and not self._every_epoch
        if self.only_audited:
            return ""
        return "" if self._state.quickly_changed() else self._state.changed()

    def left(self) -> str:
        """The epoch may have been left early: why it is not known whether its last batches were right. What has changed
        by now may have changed after them."""
        over, self._agreed = self._batches - self._agreed, self._batches
        if self._state is None or not over:
            return ""
        if self._too_dear() and not self._every_epoch:
            return TOO_LONG
        what = self._state.changed()
        return what and f"the script changed {what} in or after an epoch that it left early"

    def _too_dear(self) -> bool:
        return self._full_s > max(_LONGEST_S, _OF_EPOCH * (time.perf_counter() - self._began))

    def differs(self, keys: Any, batch: Any) -> str:
        """Make a batch again; where it is another, that is declared and given."""
        if self._agrees(keys, batch):
            return ""
        at = f"batch {self._batches} of the epoch (items {_short(keys)})"
        what = f"{at} differs from what the script's own loader makes"
        declare(Breach(self.knob, what, self._audit.unaudited - 1))
        return what

    def moved(self) -> str:
        """Before a batch is handed over: what the script has changed since the epoch began."""
        self._batches += 1
        if self._state is None:
            return ""
        self.missed = 0
        if what := self._state.quickly_changed():
            return what  # since the last batch
        what = self._looked(self._state)
        self.missed = self._batches - 1 - self._agreed
        return what

    def due(self) -> bool:
        """Whether an audit is due; called once for each batch by those who do not call `broken`."""
        suspect, self._suspect = self._suspect, False
        return self._audit.due() or suspect

    def _agrees(self, keys: Any, batch: Any) -> bool:
        """Whether a batch is the same when it is made here. The script's random numbers do not move."""
        with self._audit.timed(), random_states.kept():
            try:
                before = random_states.states()
                agrees = same(self._make(keys), batch) and not random_states.moved(before)
            except Exception:  # the script's own loader would have raised it
                agrees = False
        if agrees:
            self._audit.agreed()
        return agrees

    def _looked(self, state: Dependencies) -> str:
        """As much as `SHARE` of the time since the last look allows, all at once where that is quick."""
        least = min(self._full_s, _LONGEST_S)
        last = self._batches == self._length and (self._every_epoch or not self._too_dear())
        if time.perf_counter() < self._not_before and not last:
            return ""
        now = own_time()
        credit = (now - self._ended) * SHARE
        if credit < least and not last:  # the thread's own time passes no faster than the clock's
            self._not_before = time.perf_counter() + (least - credit) / SHARE
            return ""
        if self._full_s <= _LONGEST_S or last:
            what = state.changed()
            self._agreed, self._full_s = (
                self._batches if not what else self._agreed,
                own_time() - now,
            )
        else:
            began, compared = self._pass = self._pass or (self._batches, state.compared)
            what = state.changed(within_s=credit)
            if state.compared - compared >= state.size:
                self._agreed, self._pass = began, None
        self._ended = own_time()
        return what


def _short(keys: Any) -> str:
    text = repr(keys)
    return text if len(text) <= 60 else f"{text[:57]}..."


# What the order of items depends on: a sampler, those inside of it, and whether its output is already decided.


_LISTED: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_INNER = ("batch_sampler", "sampler")


def chain_of(sampler: Any) -> list[Any]:
    """A sampler and those inside of it."""
    found = [sampler]
    for name in _INNER:
        inner = getattr(sampler, name, None)
        if inner is not None and len(found) < 5:
            found += chain_of(inner)
    return found


def length_of(sampler: Any) -> float:
    """How much it gives in an epoch; infinite where it does not say."""
    try:
        return len(sampler)
    except (TypeError, NotImplementedError):
        return inf


def is_torchs(sampler: Any) -> bool:
    """Whether nothing of a sampler is the script's own."""
    return all(type(each).__module__.startswith("torch.utils.data") for each in chain_of(sampler))


def of_sampler(sampler: Any, dataset: Any, *, listed: bool = False) -> Dependencies:
    """What the order depends on, without the dataset. `listed`: only how a batch is cut off the list is still open."""
    chain = chain_of(sampler)
    leave = {
        (id(each), name) for each in chain for name, value in _attributes(each).items() if value is dataset
    }
    if listed:
        chain = [each for each in chain if "batch_size" in _attributes(each)]
        leave |= {(id(each), name) for each in chain for name in _INNER}
    return Dependencies(*chain, leave=leave)


def is_listed(iterator: Any) -> bool:
    """Whether the rest of a sampler's output is a list already, also behind torch's own BatchSampler."""
    if isinstance(iterator, _LISTED):
        return True
    if not isinstance(iterator, types.GeneratorType):
        return False
    if iterator.gi_yieldfrom is not None:
        return is_listed(iterator.gi_yieldfrom)
    frame = iterator.gi_frame
    inner = frame.f_locals.get("sampler_iter") if frame is not None else None
    return inner is not None and is_listed(inner)


def _attributes(value: Any) -> dict[str, Any]:
    return dict(vars(value)) if hasattr(value, "__dict__") else {}
