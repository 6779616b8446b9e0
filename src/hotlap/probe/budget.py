"""How much a run may write: all of it at first, then every second window, every fourth, and so on.

Windows are dropped whole and counted, so that what is kept stays consecutive steps. Each time a run has grown to twice
its length only half as many windows are written as before, so that every doubling costs the same few bytes, and the
end of a long run is seen as well as its beginning.
"""

from __future__ import annotations

# A million steps of 11 marks would be 88 MB raw; with its timeline a run stays under 64 MB.
LIMIT_BYTES = 24 << 20
_WINDOW_BYTES = 64 << 10  # some hundred steps, however long each of them takes
_FREE_SHARE = 1 / 6  # of the limit, before thinning begins: leaves room for ten doublings


class Budget:
    """Admits or drops what is offered, one window after the other."""

    def __init__(self, limit: int = LIMIT_BYTES) -> None:
        self.limit = limit
        self.written = 0
        self._offered = 0
        self._stride = 1

    def admits(self, size: int) -> bool:
        """Whether the next `size` bytes are written."""
        window = self._offered // _WINDOW_BYTES
        self._offered += size
        while self._offered > self._stride * self.limit * _FREE_SHARE:
            self._stride *= 2
        if window % self._stride or self.written + size > self.limit:
            return False
        self.written += size
        return True
