"""What belongs to the measured window: phases that follow it leave marks and samples too, in workers as well."""

from __future__ import annotations

from array import array

from hotlap.probe.marks import VALUE_FROM, WINDOW_END
from hotlap.probe.sampler import LINE_BITS


def marks_within(raw: array[int], end: int | None) -> array[int]:
    """The marks up to the window's end: a moment, or where that was not told, the mark itself."""
    for index, mark in enumerate(raw):
        code = mark & 255
        if code == WINDOW_END or (end is not None and code < VALUE_FROM and mark >> 8 > end):
            return raw[:index]
    return raw


def samples_within(raw: array[int], end: int | None) -> array[int]:
    """The stack samples up to the window's end."""
    if end is None:
        return raw
    after = (index for index, sample in enumerate(raw) if (sample >> LINE_BITS) * 1000 > end)
    return raw[: next(after, len(raw))]
