"""A series of any length in a fixed memory: whenever it is full, every second point goes."""

from __future__ import annotations

MOST_POINTS = 128


class Series:
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
