"""The norm of all gradients together: exploding, vanishing, or zero."""

from __future__ import annotations

import math
from collections import deque

from hotlap.stats.quantile import median
from hotlap.watch.series import Series
from hotlap.watch.word import Gravity, Word

_WINDOW, _EARLY, _RECENT = 64, 16, 4
_EXPLODES = 100.0  # times the usual norm, in all of the last looks
_VANISHES = 1e-4
"""Of the first norms: training well lowers gradients by a factor of a hundred, not of ten thousand."""


class GradientNorm:
    id = "gradient-norm"

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=_WINDOW)
        self._recent: deque[float] = deque(maxlen=_RECENT)
        self._early: list[float] = []
        self._series = Series()
        self._state = "steady"
        self._since: int | None = None

    def add(self, step: int, norm: float) -> None:
        if not math.isfinite(norm):
            return  # told by another monitor
        self._series.add(step, norm)
        self._recent.append(norm)
        if len(self._early) < _EARLY:
            self._early.append(norm)
        state = self._judge()
        if state != self._state:
            self._state, self._since = state, None if state == "steady" else step
        if state != "explodes":
            self._usual.append(norm)

    def _judge(self) -> str:
        if len(self._recent) < _RECENT or len(self._early) < _EARLY:
            return "zero" if len(self._recent) == _RECENT and not any(self._recent) else "steady"
        if not any(self._recent):
            return "zero"
        if min(self._recent) > _EXPLODES * max(median(list(self._usual)), 1e-30):
            return "explodes"
        return "vanishes" if max(self._recent) < _VANISHES * median(self._early) else "steady"

    def word(self) -> Word:
        figures = {
            "norm": self._recent[-1] if self._recent else None,
            "usual": median(list(self._usual)) if self._usual else None,
        }
        gravity = {"steady": Gravity.OK, "vanishes": Gravity.WARNING}.get(self._state, Gravity.CRITICAL)
        return Word(self._state, gravity, self._since, figures, self._series.points)
