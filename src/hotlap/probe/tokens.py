"""How many positions of a batch hold data and how many only fill it up, where a padding mask or lengths show it.

The place is found in the first batches of a loader and then followed, so that all of them are counted alike. Names
tell it: `lengths`, `attention_mask`, `audio_len`. In a tuple without names, as speech toolkits make them, a row of
integers behind a tensor holds lengths where its largest is the padded length, in several batches of several lengths:
no row of labels does that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from hotlap.probe.parts import Way, follow, tensors

_LENGTH_KEYS = (
    "lengths",
    "length",
    "input_lengths",
    "seq_lens",
    "seq_len",
    "audio_lengths",
    "feature_lengths",
)
_LENGTH_ENDINGS = ("_len", "_lens", "_length", "_lengths")
_MASK_KEYS = (
    "attention_mask",
    "padding_mask",
    "pad_mask",
    "mask",
    "src_key_padding_mask",
    "key_padding_mask",
)
_PADDING_IS_TRUE = ("padding_mask", "pad_mask", "src_key_padding_mask", "key_padding_mask")
_DEPTH = 2  # `({"input_ids": ..., "attention_mask": ...}, labels)`
_LOOKS = 8  # batches that are searched before a loader counts as one without tokens
_AGREEING = 3  # batches in which a row of integers without a name must fit as lengths do

Tensors = Sequence[tuple[Way, torch.Tensor]]


@dataclass(frozen=True)
class Mask:
    """Where a mask is, and whether it marks what is padding."""

    way: Way
    marks_padding: bool

    def count(self, batch: Any) -> tuple[int, int] | None:
        mask = follow(batch, self.way)
        if mask is None or mask.dim() != 2:
            return None
        true = int(mask.ne(0).sum())
        false = mask.numel() - true
        return (false, true) if self.marks_padding else (true, false)


@dataclass(frozen=True)
class Lengths:
    """Where lengths are, and the padded tensor that they are of, where it was seen."""

    way: Way
    padded: Way | None

    def count(self, batch: Any) -> tuple[int, int] | None:
        lengths = follow(batch, self.way)
        if lengths is None or not _is_row(lengths):
            return None
        real, longest = int(lengths.sum()), int(lengths.max())
        padded = follow(batch, self.padded) if self.padded is not None else None
        sizes = [size for size in padded.shape[1:] if size >= longest] if padded is not None else []
        size = longest if longest in sizes or not sizes else sizes[0]
        return real, size * lengths.numel() - real


class TokenCounter:
    """Of the batches of one loader."""

    def __init__(self) -> None:
        self._place: Mask | Lengths | None = None
        self._looks = 0
        self._suspects: dict[Way, tuple[Way, list[int]]] = {}

    @property
    def hopeless(self) -> bool:
        """Nothing was found in enough batches."""
        return self._place is None and self._looks >= _LOOKS

    def count(self, batch: Any) -> tuple[int, int] | None:
        """(real tokens, places that only pad); None where this batch does not show them."""
        if self._place is None and self._looks < _LOOKS:
            self._looks += 1
            found = list(tensors(batch, _DEPTH))
            self._place = _named(found) or self._nameless(found)
        return self._place.count(batch) if self._place is not None else None

    def _nameless(self, found: Tensors) -> Lengths | None:
        """Rows that have fitted in every batch so far, once these were enough and not all of one length."""
        fitting = _fitting(found)
        before = self._suspects if self._looks > 1 else {way: (fitting[way][0], []) for way in fitting}
        self._suspects = {
            way: (padded, [*longest, fitting[way][1]])
            for way, (padded, longest) in before.items()
            if way in fitting
        }
        for way, (padded, longest) in self._suspects.items():
            if len(longest) >= _AGREEING and len(set(longest)) > 1:
                return Lengths(way, padded)
        return None


def _named(found: Tensors) -> Mask | Lengths | None:
    """Names that mean nothing else come first; of several that only end like lengths, the longest sequences count."""
    for way, value in found:
        if _name(way) in _LENGTH_KEYS and _is_row(value):
            return Lengths(way, _padded(value, found))
    for way, value in found:
        if _name(way) in _MASK_KEYS and value.dim() == 2:
            return Mask(way, _name(way) in _PADDING_IS_TRUE)
    likely = [
        (int(value.sum()), way, padded)
        for way, value in found
        if _name(way).endswith(_LENGTH_ENDINGS) and _is_row(value) and (padded := _padded(value, found))
    ]
    return Lengths(*max(likely, key=lambda each: each[0])[1:]) if likely else None


def _fitting(found: Tensors) -> dict[Way, tuple[Way, int]]:
    """Rows of integers right behind a tensor with as many rows that is exactly as long as the largest of them."""
    fitting: dict[Way, tuple[Way, int]] = {}
    for (way, value), (behind, row) in pairwise(found):
        if value.dim() >= 2 and _is_row(row) and value.shape[0] == row.numel() > 1:
            longest = int(row.max())
            if longest in value.shape[1:] and longest > 1 and int(row.min()) > 0:
                fitting[behind] = (way, longest)
    return fitting


def _padded(lengths: torch.Tensor, found: Tensors) -> Way | None:
    """A tensor with a row for each length that has room for the longest."""
    longest = int(lengths.max())
    for way, value in found:
        if value.dim() >= 2 and value.shape[0] == lengths.numel() and max(value.shape[1:]) >= longest:
            return way
    return None


def _is_row(value: torch.Tensor) -> bool:
    kinds = (torch.int16, torch.int32, torch.int64)
    return value.dim() == 1 and value.numel() > 0 and value.dtype in kinds


def _name(way: Way) -> str:
    return str(way[-1][1])
