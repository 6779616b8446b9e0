"""One file per monitor. A monitor is fed with numbers and keeps a fixed number of them; none of them needs torch."""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from hotlap.stats.robust import mad, median, slope

# What a monitor says: one word, how grave it is, since when, and the figures it rests on.


class Gravity(StrEnum):
    """How grave: nothing to do, look at it, act."""

    OK = "ok"
    WARNING = "warning"
    CRITICAL = "critical"


@dataclass(frozen=True)
class Word:
    """`state` is a word of the monitor's own, such as `spiked`; `since` is the step at which it began."""

    state: str
    gravity: Gravity = Gravity.OK
    since: int | None = None
    figures: Mapping[str, float | str | None] = field(default_factory=dict)
    series: Sequence[tuple[float, float]] = ()


# A series of any length in a fixed memory: whenever it is full, every second point goes.


MOST_POINTS = 128


class ThinnedSeries:
    """Points (x, y) over a whole run. Between two that are kept, points that came are passed over."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self.points: list[tuple[float, float]] = []
        self._most = most
        self._stride = 1
        self._seen = 0

    def add(self, x: float, y: float) -> None:
        if self._seen % self._stride == 0:
            self.points.append((x, y))
            if len(self.points) >= self._most:
                del self.points[1::2]
                self._stride *= 2
        self._seen += 1


# The norm of all gradients together: exploding, vanishing, or zero.


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
        self._series = ThinnedSeries()
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


# A loss that jumps far out of its own scatter, for a step or for good.


_LOSS_WINDOW = 128
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
        self._usual: deque[float] = deque(maxlen=_LOSS_WINDOW)
        self._block: list[tuple[int, float]] = []
        self._series = ThinnedSeries()
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
        accepted = block if not high or self._high_blocks > _LOSS_WINDOW // _TOGETHER else []
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


# Memory of the process, or of its GPU, that grows and grows.


_LEAST_GROWTH = 16  # points before anything is said
_SETTLED = 0.25  # of the points are start-up: caches and allocators fill
_GROWS_IN = 0.1  # quantile of the slopes of all pairs: nine of ten rise
_NOTICEABLE, _NOTICEABLE_BYTES = 0.05, 64 << 20
_STATM = Path("/proc/self/statm")


class MemoryGrowthMonitor:
    def __init__(self, what: str = "memory") -> None:
        self.id = f"{what}-growth"
        self._series = ThinnedSeries()
        self._since: int | None = None
        self._rate: float | None = None
        self._last: tuple[int, float] | None = None

    def add(self, step: int, moment: float, used: int) -> None:
        """Seconds and bytes."""
        self._series.add(moment, float(used))
        self._last = (step, float(used))

    def judge(self) -> None:
        """Dear (all pairs of points), so it is asked for apart."""
        points = self._series.points[int(len(self._series.points) * _SETTLED) :]
        if len(points) < _LEAST_GROWTH or self._last is None:
            return
        times, sizes = [each[0] for each in points], [each[1] for each in points]
        grown = median(sizes[-4:]) - median(sizes[:4])
        least = slope(times, sizes, _GROWS_IN)
        grows = least > 0 and grown > max(_NOTICEABLE_BYTES, _NOTICEABLE * sizes[0])
        self._rate = slope(times, sizes) if grows else None
        self._since = (self._since or self._last[0]) if grows else None

    def word(self) -> Word:
        used = self._last[1] if self._last else None
        per_minute = self._rate * 60 if self._rate is not None else None
        figures = {"used": used, "per_minute": per_minute}
        if self._since is None:
            return Word("steady", figures=figures, series=self._series.points)
        return Word("grows", Gravity.WARNING, self._since, figures, self._series.points)


def resident_bytes() -> int | None:
    """Of this process: a read of a small file on Linux, the peak elsewhere; None where neither is there."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except ImportError:  # Windows
        return None
    return peak if sys.platform == "darwin" else peak * 1024


# Losses and gradients that are not finite.


_FORGIVEN_AFTER = 100  # finite values in a row: the run has got over it


class NotFinite:
    id = "not-finite"

    def __init__(self) -> None:
        self._seen = self._bad = self._good_in_a_row = 0
        self._what = ""
        self._since: int | None = None

    def add(self, step: int, what: str, value: float) -> None:
        """`what` is `loss` or `gradient`."""
        self._seen += 1
        if math.isfinite(value):
            self._good_in_a_row += 1
            return
        if self._since is None or self._good_in_a_row >= _FORGIVEN_AFTER:
            self._since, self._what = step, what
        self._bad += 1
        self._good_in_a_row = 0

    def word(self) -> Word:
        figures = {"looks": float(self._seen), "bad": float(self._bad), "what": self._what or None}
        if self._since is None:
            return Word("finite", figures=figures)
        if self._good_in_a_row >= _FORGIVEN_AFTER:
            return Word("recovered", Gravity.OK, self._since, figures)
        return Word("not-finite", Gravity.CRITICAL, self._since, figures)


# Steps per second that fall below what the same run has kept up before.


_BLOCK_STEPS, _BLOCK_S = 4, 1.0  # a block has so many steps and lasts so long at least
_SUSTAINED, _RECENT_SPEED = 16, 8  # blocks
_SLOWER = 0.8  # of the best that was kept up: what a busy neighbour takes for a moment is none


class ThroughputDrift:
    """Fed with the time at which each step ended. Validation is one slow block, which a median passes over."""

    id = "throughput-drift"

    def __init__(self) -> None:
        self._blocks: deque[float] = deque(maxlen=_SUSTAINED)
        self._series = ThinnedSeries()
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
        recent = list(self._blocks)[-_RECENT_SPEED:]
        slow = sum(rate < _SLOWER * self._best for rate in recent) > 0.75 * _RECENT_SPEED
        self._since = (self._since or step) if slow else None

    def word(self) -> Word:
        recent = median(list(self._blocks)[-_RECENT_SPEED:]) if self._blocks else None
        change = recent / self._best - 1.0 if recent is not None and self._best else None
        figures = {"now": recent, "best": self._best, "change": change}
        if self._since is None:
            return Word("steady" if self._best else "learning", figures=figures, series=self._series.points)
        return Word("slower", Gravity.WARNING, self._since, figures, self._series.points)
