"""A loss that jumps far out of its own scatter, for a step or for good."""

from __future__ import annotations

import math
from collections import deque

from hotlap.stats.quantile import median
from hotlap.stats.robust import mad
from hotlap.watch.series import Series
from hotlap.watch.word import Gravity, Word

_WINDOW = 128
_LEAST = 32  # losses before anything is called a spike
_TOGETHER = (
    8  # losses are judged in blocks: sorting the window for each of them would cost more than all else
)
_REFRESH = 4  # blocks after which the limit is computed anew
_DEVIATIONS = 10.0
_BEYOND = 5.0
"""Times the largest excess over the median in the window: losses of small batches have long tails of their own."""
_SHOWN_FOR = 256  # losses after a spike in which it is still told


class LossSpike:
    id = "loss-spike"

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=_WINDOW)
        self._block: list[tuple[int, float]] = []
        self._series = Series()
        self._spikes = self._since_spike = self._high_blocks = self._blocks = 0
        self._bound = math.inf
        self._was_high = False
        self._worst: float | None = None
        self._at: int | None = None

    def add(self, step: int, loss: float) -> None:
        if math.isfinite(loss):
            self._block.append((step, loss))
            if len(self._block) >= _TOGETHER:
                self._judge()

    def _judge(self) -> None:
        block, self._block = self._block, []
        self._series.add(block[-1][0], median([loss for _, loss in block]))
        self._since_spike += len(block)
        if self._blocks % _REFRESH == 0 or self._bound == math.inf:
            self._bound = self._limit()
        self._blocks += 1
        high = [(step, loss) for step, loss in block if loss > self._bound]
        if high:
            self._note(high)
        self._was_high = bool(high)
        lasts = len(high) > len(block) // 2
        self._high_blocks = self._high_blocks + 1 if lasts else 0
        # What lasts is the new level in the end, or nothing after it would ever count as usual again.
        accepted = block if not high or self._high_blocks > _WINDOW // _TOGETHER else []
        self._usual.extend(loss for _, loss in accepted)

    def _limit(self) -> float:
        if len(self._usual) < _LEAST:
            return math.inf
        usual = list(self._usual)
        middle = median(usual)
        least = 0.1 * abs(middle)
        return middle + max(_DEVIATIONS * mad(usual), _BEYOND * (max(usual) - middle), least)

    def _note(self, high: list[tuple[int, float]]) -> None:
        if not self._was_high:
            self._at = high[0][0]
            self._spikes += 1
        self._since_spike = 0
        self._worst = max(loss for _, loss in high)

    def word(self) -> Word:
        usual = median(list(self._usual)) if self._usual else None
        figures = {"usual": usual, "worst": self._worst, "spikes": float(self._spikes)}
        points = self._series.points
        if self._high_blocks > 1:
            return Word("diverges", Gravity.CRITICAL, self._at, figures, points)
        if self._at is not None and self._since_spike < _SHOWN_FOR:
            return Word("spiked", Gravity.WARNING, self._at, figures, points)
        return Word("calm", Gravity.OK, None, figures, points)
