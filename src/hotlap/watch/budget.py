"""The share of the training time that monitors may take: they measure their own cost, and thin themselves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hotlap.errors import UsageError

_OFF = ("off", "0", "0%")
_RECENT = (
    0.25  # weight of the newest cost of a task: first calls are dearer than later ones, and are forgotten
)
_DEVIATIONS = 2.0  # on top of the usual cost: one that is dearer than usual must not overdraw the budget


@dataclass
class _Cost:
    """Of a task, in seconds: what it usually takes, and by how much it is usually off that."""

    usual: float
    deviation: float = 0.0

    @property
    def likely(self) -> float:
        return self.usual + _DEVIATIONS * self.deviation

    def learn(self, seconds: float) -> None:
        self.deviation += _RECENT * (abs(seconds - self.usual) - self.deviation)
        self.usual += _RECENT * (seconds - self.usual)


class Budget:
    """All tasks of all monitors together stay below `share` of the time since the first of them was asked for.

    A task is let through when what it is likely to cost still fits in: a dear one (a plot) saves up for longer than a
    cheap one (a loss that is looked at). `"off"` lets nothing through, `"100%"` everything. Several monitors may share
    one.
    """

    def __init__(self, share: float | str = "1%", clock: Callable[[], float] = time.perf_counter) -> None:
        self.share = parsed_share(share)
        self.spent = 0.0
        self.left_out = 0
        self._clock = clock
        self._began: float | None = None
        self._depth = 0
        self._costs: dict[str, _Cost] = {}

    @property
    def elapsed(self) -> float:
        """Seconds since a task was first asked for."""
        return 0.0 if self._began is None else self._clock() - self._began

    @property
    def spent_share(self) -> float | None:
        """What monitoring has cost so far, as a share of the time; None before anything could be measured."""
        elapsed = self.elapsed
        return self.spent / elapsed if elapsed > 0 else None

    def allows(self, task: str, guess_s: float = 0.0) -> bool:
        """Whether the task may be done now; `guess_s` is what it may take as long as nobody knows."""
        if self._began is None:
            self._began = self._clock()
        cost = self._costs[task].likely if task in self._costs else guess_s
        if self.share >= 1 or (self.share > 0 and self.spent + cost <= self.share * self.elapsed):
            return True
        self.left_out += 1
        return False

    @contextmanager
    def spending(self, task: str) -> Iterator[None]:
        """Around the task itself: what it takes is booked, also where it fails. Of tasks inside a task, once."""
        began = self._clock()
        if self._began is None:
            self._began = began
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            took = self._clock() - began
            self._learn(task, took)
            if not self._depth:
                self.spent += took

    def charge(self, task: str, seconds: float) -> None:
        """Book a cost that was measured elsewhere, such as time of a device."""
        self._learn(task, seconds)
        self.spent += seconds

    def _learn(self, task: str, seconds: float) -> None:
        if task in self._costs:
            self._costs[task].learn(seconds)
        else:
            self._costs[task] = _Cost(seconds)


def parsed_share(text: float | str) -> float:
    """`"1%"`, `0.01` and `"off"` as a share."""
    try:
        if isinstance(text, str):
            plain = text.strip().lower()
            number = plain.removesuffix("%")
            share = 0.0 if plain in _OFF else float(number) / (100 if plain.endswith("%") else 1)
        else:
            share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 1.0:
        raise UsageError(f"the budget '{text}' is no share of the time.", 'give "1%", 0.01 or "off"')
    return share
