"""Memory of the process, or of its GPU, that grows and grows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hotlap.stats.quantile import median
from hotlap.stats.robust import slope
from hotlap.watch.series import Series
from hotlap.watch.word import Gravity, Word

_LEAST = 16  # points before anything is said
_SETTLED = 0.25  # of the points are start-up: caches and allocators fill
_GROWS_IN = 0.1  # quantile of the slopes of all pairs: nine of ten rise
_NOTICEABLE, _NOTICEABLE_BYTES = 0.05, 64 << 20
_STATM = Path("/proc/self/statm")


class MemoryGrowth:
    def __init__(self, what: str = "memory") -> None:
        self.id = f"{what}-growth"
        self._series = Series()
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
        if len(points) < _LEAST or self._last is None:
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
