"""How much a run may write: all of it at first, then every second window, every fourth, and so on.

Windows are dropped whole and counted, so that what is kept stays consecutive steps. A run of any length stays under
`LIMIT_BYTES`: each time the file fills a further share of it, only half as many windows are written as before.
"""

from __future__ import annotations

# A million steps of 11 marks would be 88 MB raw; with its timeline a run stays under 64 MB.
LIMIT_BYTES = 24 << 20
_WINDOW_BYTES = 64 << 10  # some hundred steps, however long each of them takes
_FREE_SHARE = 0.5  # of the limit, before thinning begins


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
        if self.written + size > self.limit:
            return False
        self._widen()
        if window % self._stride:
            return False
        self.written += size
        return True

    def _widen(self) -> None:
        left = 1 - self.written / self.limit
        while left < _FREE_SHARE / self._stride:
            self._stride *= 2
