"""Sequences where they lie, end to end in one array, and padded batches of them without a loop over samples."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

Array = np.ndarray[Any, Any]
MOST_PADDING = 0.25
"""Of a batch. Rows are copied at the length of the longest and their ends overwritten: with more, a loop is quicker."""


@dataclass(frozen=True)
class Spans:
    """Sequence i begins at `values[starts[i]]` and has `lengths[i]` steps of the shape `step` each."""

    values: Array
    starts: Array
    lengths: Array
    step: tuple[int, ...]

    def rows(self, width: int) -> Array:
        """A copy of `width` values from each start, as many of them as there are; what is missing is not set."""
        every = max(0, len(self.values) - width + 1)
        windows = as_strided(self.values, (every, width), self.values.strides * 2, writeable=False)
        if self.starts.max() < every:
            return windows[self.starts]
        whole = self.starts < every
        found = np.empty((len(self.starts), width), self.values.dtype)
        found[whole] = windows[self.starts[whole]]
        for place in np.flatnonzero(~whole):
            rest = self.values[self.starts[place] :]
            found[place, : len(rest)] = rest
        return found


def padded(parts: Sequence[tuple[Spans, Array]], value: float) -> tuple[Array, Array] | None:
    """A batch, padded to its longest, and the lengths; None where sequences differ too much in length or shape.

    Each part has its places in the batch beside it.
    """
    first, _ = parts[0]
    lengths = np.empty(sum(len(places) for _, places in parts), np.int64)
    for spans, places in parts:
        lengths[places] = spans.lengths
    longest = int(lengths.max())
    alike = all(spans.step == first.step and spans.values.dtype == first.values.dtype for spans, _ in parts)
    if not alike or lengths.sum() < (1 - MOST_PADDING) * longest * len(lengths):
        return None
    width = longest * math.prod(first.step)
    if len(parts) == 1:
        batch = first.rows(width)
    else:
        batch = np.empty((len(lengths), width), first.values.dtype)
        for spans, places in parts:
            batch[places] = spans.rows(width)
    batch = batch.reshape(len(lengths), longest, *first.step)
    _fill_up(batch, lengths, value)
    return batch, lengths


def _fill_up(batch: Array, lengths: Array, value: float) -> None:
    shortest = int(lengths.min())
    beyond = np.arange(shortest, batch.shape[1]) >= lengths[:, None]
    rest = batch[:, shortest:]
    np.copyto(rest, value, where=beyond.reshape(beyond.shape + (1,) * (batch.ndim - 2)), casting="unsafe")


# Memory for batches, used again once nobody else holds it: fresh pages have to be found and cleared.


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
