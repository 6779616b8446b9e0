"""Steps per second that fall below what the same run has kept up before."""

from __future__ import annotations

from collections import deque

from hotlap.stats.quantile import median
from hotlap.watch.series import Series
from hotlap.watch.word import Gravity, Word

_BLOCK_STEPS, _BLOCK_S = 4, 1.0  # a block has so many steps and lasts so long at least
_SUSTAINED, _RECENT = 16, 8  # blocks
_SLOWER = 0.8  # of the best that was kept up: what a busy neighbour takes for a moment is none


class ThroughputDrift:
    """Fed with the time at which each step ended. Validation is one slow block, which a median passes over."""

    id = "throughput-drift"

    def __init__(self) -> None:
        self._blocks: deque[float] = deque(maxlen=_SUSTAINED)
        self._series = Series()
        self._best: float | None = None
        self._from: float | None = None
        self._steps = self._at = 0
        self._since: int | None = None

    def add(self, step: int, moment: float) -> None:
        """The `step`-th has ended at this moment; it need not be told of each."""
        made, self._at = step - self._at, step
        if self._from is None:
            self._from = moment  # the first step ends here: what came before it was start-up
            return
        self._steps += made
        span = moment - self._from
        if self._steps < _BLOCK_STEPS or span < _BLOCK_S:
            return
        rate = self._steps / span
        self._from, self._steps = moment, 0
        self._blocks.append(rate)
        self._series.add(step, rate)
        self._judge(step)

    def pause(self) -> None:
        """What comes next does not follow on what came before."""
        self._from, self._steps = None, 0

    def _judge(self, step: int) -> None:
        if len(self._blocks) < _SUSTAINED:
            return
        self._best = max(self._best or 0.0, median(list(self._blocks)))
        recent = list(self._blocks)[-_RECENT:]
        slow = sum(rate < _SLOWER * self._best for rate in recent) > 0.75 * _RECENT
        self._since = (self._since or step) if slow else None

    def word(self) -> Word:
        recent = median(list(self._blocks)[-_RECENT:]) if self._blocks else None
        change = recent / self._best - 1.0 if recent is not None and self._best else None
        figures = {"now": recent, "best": self._best, "change": change}
        if self._since is None:
            return Word("steady" if self._best else "learning", figures=figures, series=self._series.points)
        return Word("slower", Gravity.WARNING, self._since, figures, self._series.points)
