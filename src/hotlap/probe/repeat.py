"""Whether a dataset gives the same items again: proved by fetching some of them twice under different random states,
and once more from a copy that was told of another epoch, where the dataset knows of epochs.

It happens once, after the window, right before the script is ended, so that nothing of the training can change by it.
Random states are put back all the same. Any fault, and any item that takes too long, means: not known.
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from hotlap.sameness.content import bytes_of, same
from hotlap.sameness.epochs import NoOtherEpochError, in_other_epochs

_ITEMS = 8  # enough to meet a random draw that spares every second item; of slow items fewer are waited for
_BUDGET_S = 0.5
_LONGEST_S = 2.0  # a fetch that retries or stalls is given up then


def describe_items(dataset: Any) -> dict[str, Any]:
    """`item_bytes`, `deterministic` and `draws_random` of a map-style dataset; what was not proved is left out."""
    fetch = _fetcher(dataset)
    sizes: list[int] = []
    equal, drawn, lasting = True, False, True
    began = time.monotonic()
    with _RandomStates() as states, _given_up_after(_LONGEST_S):
        later = _later(dataset)
        for index in _indices(len(dataset)):
            states.seed(1)
            first = fetch(index)
            drawn = drawn or states.moved()
            if time.monotonic() - began > _BUDGET_S:
                break
            states.seed(2)
            equal = equal and same(first, fetch(index))
            lasting = lasting and all(same(first, other(index)) for other in later or ())
            sizes.append(bytes_of(first))
    if not sizes:
        return {}
    known = {"item_bytes": sum(sizes) // len(sizes), "draws_random": drawn or not equal}
    proved = later is not None or drawn or not equal
    return known | ({"deterministic": equal and lasting and not drawn} if proved else {})


def _indices(count: int) -> list[int]:
    """The first, the last and the middle one come first."""
    spread = [count * place // _ITEMS for place in range(_ITEMS)]
    order = dict.fromkeys([0, count - 1, count // 2, *spread])
    return [index for index in order if 0 <= index < count][:_ITEMS]


def _later(dataset: Any) -> list[Callable[[int], Any]] | None:
    """Fetch items as in other epochs; none where the dataset knows of none, None where that cannot be told."""
    try:
        return [_fetcher(each) for each in in_other_epochs(dataset)]
    except NoOtherEpochError:
        return None


def _fetcher(dataset: Any) -> Callable[[int], Any]:
    """As the loader does it: `__getitems__` comes first."""
    at_once = getattr(dataset, "__getitems__", None)
    if callable(at_once):
        return lambda index: at_once([index])
    return lambda index: dataset[index]


class _RandomStates:
    """The random numbers of Python, torch's CPU and, where it is loaded, NumPy."""

    def __enter__(self) -> _RandomStates:
        self._numpy: Any = getattr(sys.modules.get("numpy"), "random", None)
        self._torch = torch.default_generator
        self._saved = self._read()
        self._seeded = self._saved
        return self

    def __exit__(self, *_: object) -> None:
        random.setstate(self._saved[0])
        self._torch.set_state(self._saved[1])
        if self._numpy is not None:
            self._numpy.set_state(self._saved[2])

    def seed(self, number: int) -> None:
        random.seed(number)
        self._torch.manual_seed(number)
        if self._numpy is not None:
            self._numpy.seed(number)
        self._seeded = self._read()

    def moved(self) -> bool:
        """Whether anybody has drawn since."""
        return not same(self._seeded, self._read())

    def _read(self) -> tuple[Any, ...]:
        numpy = self._numpy.get_state() if self._numpy is not None else None
        return random.getstate(), self._torch.get_state(), numpy


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Interrupts a fetch that sleeps or retries; only where nobody else uses the alarm."""
    free = (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    )
    if not free:
        yield
        return
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _give_up(*_: object) -> None:
    raise TimeoutError("an item took too long to be fetched again")
