"""Keep monitoring within a share of the training time.

What it does
    Times the callbacks that the user gave to the trainer, and leaves out calls of those that come with each batch
    as long as, all together, they take more than the share. Callbacks of the framework itself (checkpoints, progress
    bars, early stopping, learning-rate monitors) are never left out, nor what comes with an epoch, a validation or
    the start and the end of training.
When it helps
    Weight histograms, gradient norms or plots with every batch take a noticeable part of the run.
What it costs
    What is monitored is monitored more rarely; a callback that counts batches by itself counts only those it saw.
Numerics
    Statistical: a callback may do anything, change a learning rate for example.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Numerics, TrainerKnob
from hotlap.ports.target import Around, Undo
from hotlap.ports.values import Share


class MonitorBudget(TrainerKnob):
    id = "monitor-budget"
    relieves = frozenset({Cause.MONITORING_HEAVY})
    numerics = Numerics.STATISTICAL
    values = Share()
    promise = (0.05, 0.15)
    stage = Stage.OTHER
    absent = "the script monitors by itself, in a loop of its own: do so every so many steps there"

    def settings(self, host: Host, timeline: Timeline) -> tuple[float, ...]:
        return (0.02,) if timeline.runtime.framework in ("lightning", "hf-trainer") else ()


Wrap = Callable[[Any, str, Around], Undo]


class CallbackTimeBudget:
    """Lets a call through while monitoring, all together, has taken less than its share of the time so far."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._began: float | None = None
        self._spent = 0.0
        self._met: set[str] = set()
        self._inside = False
        self.made = self.left_out = 0

    def around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def within_budget(*args: Any, **kwargs: Any) -> Any:
            if self._inside:  # `super().on_...()` of a call that was let through
                return original(*args, **kwargs)
            begin = time.perf_counter()
            if not self._allows(original.__qualname__, begin):
                self.left_out += 1
                return None
            self.made += 1
            self._inside = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside = False
                self._spent += time.perf_counter() - begin

        return within_budget

    def _allows(self, name: str, now: float) -> bool:
        """Each monitor once, whatever it takes: nobody knows before."""
        if self._began is None:
            self._began = now
        first = name not in self._met
        self._met.add(name)
        return first or self._spent <= self._share * (now - self._began)


def thin(callbacks: Iterable[Any], base: type, hooks: Sequence[str], share: float, wrap: Wrap) -> Undo:
    """Put the hooks of the user's own callbacks under one budget.

    A callback that builds on anything of the framework but `base` itself does the framework's work: it is left alone.
    """
    budget = CallbackTimeBudget(share)
    kinds = {kind for callback in callbacks for kind in _own_kinds(type(callback), base)}
    undos = [
        wrap(kind, name, budget.around)
        for kind in sorted(kinds, key=lambda each: each.__qualname__)
        for name in hooks
        if name in vars(kind)
    ]
    if not undos:
        raise CannotActError("no callback of the script's own is called with each batch")

    def undo() -> None:
        for each in reversed(undos):
            each()

    return undo


def _own_kinds(kind: type, base: type) -> Sequence[type]:
    own = [each for each in kind.__mro__ if each is not object and not issubclass(base, each)]
    framework = base.__module__.partition(".")[0]
    return () if any(each.__module__.partition(".")[0] == framework for each in own) else own
