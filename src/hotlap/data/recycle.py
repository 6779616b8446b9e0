"""Memory for batches, used again once nobody else holds it: fresh pages have to be found and cleared."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
KEPT = 4
"""Arrays: the batch that is trained on, the one that is being made, and two that someone has put aside."""
LEAST_BYTES = 1 << 18
"""Smaller ones come out of memory that the process has already."""
_OURS = 3
"""References to an array that nobody else holds: the list's, the loop's, and the one that is asked about."""


class Recycler:
    """Gives out arrays. Who holds one, a view of it or a tensor on it keeps it: only what is let go is used again."""

    def __init__(self) -> None:
        self._kept: list[Array] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """As `np.empty`."""
        for array in self._kept:
            if array.shape == shape and array.dtype == dtype and sys.getrefcount(array) == _OURS:
                return array
        made = np.empty(shape, dtype)
        if made.nbytes >= LEAST_BYTES:
            self._kept = [*self._kept[-KEPT + 1 :], made]
        return made
