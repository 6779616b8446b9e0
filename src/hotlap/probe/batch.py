"""Reads off a batch how many samples it holds and, where lengths or a padding mask are visible, how many tokens.

Batches hide their tensors in tuples, dicts, dataclasses and containers of frameworks; the way to the first tensor is
found once and then followed.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns
from typing import Any

import torch

from hotlap.probe import marks

_TRIED = 8  # batches whose tokens are all counted: then it is known what that costs
_SELDOM = 8  # batches between two counts where counting all of them would cost too much
_SHARE = 0.005  # of the time between two batches that counting may take
_MOST_SEARCHES = 32  # where batches differ or hold no tensor: each is a walk through all of a batch


class BatchReader:
    """Writes down the facts of the batches of one loader."""

    def __init__(self, loader: int, batch_size: int | None = None) -> None:
        """`batch_size` is the loader's own, of batches that it puts together."""
        self.loader = loader
        self._batch_size = batch_size
        self._rows = 1  # of the first tensor, for each sample
        self._rows_tell = True  # how many samples there are
        self._path: Way | None = None
        self._searches = _MOST_SEARCHES
        self.batches = 0
        self._tokens = TokenCounter()
        self._every = 1
        self._began = 0
        self._cost = sys.maxsize  # of the cheapest count: the first ones warm up

    def read(self, batch: Any, append: Callable[[int], None]) -> None:
        append(self.loader << 8 | marks.LOADER_ID)
        size = self._size(batch)
        if size >= 0:
            append(size << 8 | marks.SAMPLES)
        self.batches += 1
        if not self._tokens.hopeless and (self.batches - 1) % self._every == 0:
            self._count(batch, append)

    def _count(self, batch: Any, append: Callable[[int], None]) -> None:
        """A throughput in tokens is only as good as its count, so every batch is counted where that is cheap."""
        began = perf_counter_ns()
        counted = self._tokens.count(batch)
        ended = perf_counter_ns()
        self._began = self._began or began
        self._cost = min(self._cost, ended - began)
        if self.batches == _TRIED + 1:
            self._every = 1 if self._cost <= _SHARE * (began - self._began) / _TRIED else _SELDOM
        if counted is not None:
            append(counted[0] << 8 | marks.TOKENS)
            append(counted[1] << 8 | marks.PADDED)

    def _size(self, batch: Any) -> int:
        tensor = follow(batch, self._path) if self._path is not None else None
        if tensor is None and self._searches:
            self._searches -= 1
            counted = self._batch_size is not None and path_to_tensor(batch, self._batch_size)
            self._path = counted if isinstance(counted, tuple) else path_to_tensor(batch)
            tensor = follow(batch, self._path) if self._path is not None else None
        rows = (tensor.shape[0] if tensor.dim() else 1) if tensor is not None else -1
        return self._samples(rows, len(batch) if isinstance(batch, list | tuple) else -1)

    def _samples(self, rows: int, parts: int) -> int:
        """A sample may have several rows (views, frames, crops), or as many as it has pairs or nodes; a batch may be a
        list of samples."""
        expected = self._batch_size
        if rows < 0 or (expected is not None and parts == expected != rows):
            return parts
        if expected and not self.batches:  # the first one is whole
            self._rows = max(1, rows // expected)
            self._rows_tell = self._rows * expected == rows or expected / 2 <= rows < expected
        if expected and rows > expected * self._rows:
            self._rows_tell = False  # samples differ in their rows
        if expected and not self._rows_tell:
            return expected
        return rows // self._rows if rows % self._rows == 0 else rows


# The parts of a batch: tuples, dicts, dataclasses and containers of frameworks, and ways to the tensors in them.


MOST_DEPTH = 6

Step = tuple[str, Any]  # item or attribute, and its key
Way = tuple[Step, ...]


def path_to_tensor(batch: Any, rows: int | None = None, depth: int = 0) -> Way | None:
    """Keys and attribute names that lead to the first tensor, None where there is none; with `rows`, of that many."""
    if isinstance(batch, torch.Tensor):
        return () if rows is None or (batch.dim() and batch.shape[0] == rows) else None
    if depth >= MOST_DEPTH:
        return None
    for step, inner in children(batch):
        rest = path_to_tensor(inner, rows, depth + 1)
        if rest is not None:
            return (step, *rest)
    return None


def follow(batch: Any, path: Way) -> torch.Tensor | None:
    """The tensor at the end of a path; None where this batch is built otherwise."""
    try:
        for kind, key in path:
            batch = batch[key] if kind == "item" else getattr(batch, key)
    except (KeyError, IndexError, AttributeError, TypeError):
        return None
    return batch if isinstance(batch, torch.Tensor) else None


def tensors(batch: Any, depth: int, way: Way = ()) -> Iterator[tuple[Way, torch.Tensor]]:
    """All tensors in the memory of the host, with the ways to them, not deeper than this."""
    for step, inner in children(batch):
        if isinstance(inner, torch.Tensor):
            if inner.device.type == "cpu":
                yield (*way, step), inner
        elif depth > 1:
            yield from tensors(inner, depth - 1, (*way, step))


def children(batch: Any) -> Iterator[tuple[Step, Any]]:
    """What a container holds directly, with the step to it; nothing of what is no container."""
    if isinstance(batch, Mapping):
        yield from ((("item", key), value) for key, value in batch.items())
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        yield from ((("attribute", name), getattr(batch, name)) for name in batch._fields)
    elif isinstance(batch, list | tuple):
        yield from ((("item", index), value) for index, value in enumerate(batch[:8]))
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        names = [field.name for field in dataclasses.fields(batch)]
        yield from ((("attribute", name), getattr(batch, name)) for name in names)
    elif hasattr(batch, "__dict__") and not isinstance(batch, type):
        yield from ((("attribute", name), value) for name, value in list(vars(batch).items())[:16])


# How many positions of a batch hold data and how many only fill it up, where a padding mask or lengths show it.
#
# The place is found in the first batches of a loader and then followed, so that all of them are counted
# alike. Names tell it: `lengths`, `attention_mask`, `audio_len`. In a tuple without names, as speech toolkits
# make them, a row of integers behind a tensor holds lengths where its largest is the padded length, in
# several batches of several lengths: no row of labels does that. Where neither is given, rows of integers end in
# runs of one value that stands nearly nowhere else.


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
_AGREEING = (
    3  # batches in which a row of integers without a name must fit as lengths do, or rows be filled up
)
_LEAST_POSITIONS = 4  # of rows that are filled up
_FILLED_ROWS = 0.5
_ELSEWHERE = 0.01  # of what is before the runs: the value that fills up means nothing else

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

    def needed(self, batch: Any) -> tuple[int, int] | None:
        """(positions of a row up to the last that holds data in any, positions of a row)."""
        mask = follow(batch, self.way)
        if mask is None or mask.dim() != 2:
            return None
        holds = mask.eq(0) if self.marks_padding else mask.ne(0)
        return int(_before_end(holds).max()), mask.shape[1]


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

    def needed(self, batch: Any) -> tuple[int, int] | None:
        """As of a mask."""
        counted, lengths = self.count(batch), follow(batch, self.way)
        if counted is None or lengths is None or self.padded is None:
            return None
        return int(lengths.max()), sum(counted) // lengths.numel()


@dataclass(frozen=True)
class Filling:
    """Where rows of integers are, and the value that fills them up at their end."""

    way: Way
    value: int

    def count(self, batch: Any) -> tuple[int, int] | None:
        rows = follow(batch, self.way)
        if rows is None or not _is_table(rows):
            return None
        real = int(_before_end(rows.ne(self.value)).sum())
        return real, rows.numel() - real

    def needed(self, batch: Any) -> tuple[int, int] | None:
        """As of a mask."""
        rows = follow(batch, self.way)
        if rows is None or not _is_table(rows):
            return None
        return int(_before_end(rows.ne(self.value)).max()), rows.shape[1]


class TokenCounter:
    """Of the batches of one loader."""

    def __init__(self) -> None:
        self._place: Mask | Lengths | Filling | None = None
        self._looks = 0
        self._suspects: dict[Way, tuple[Way, list[int]]] = {}
        self._filled: dict[Filling, int] = {}

    @property
    def hopeless(self) -> bool:
        """Nothing was found in enough batches."""
        return self._place is None and self._looks >= _LOOKS

    def count(self, batch: Any) -> tuple[int, int] | None:
        """(real tokens, places that only pad); None where this batch does not show them."""
        place = self._place_in(batch)
        return place.count(batch) if place is not None else None

    def needed(self, batch: Any) -> tuple[int, int] | None:
        """(positions of a row up to the last that holds data in any, positions of a row); None likewise."""
        place = self._place_in(batch)
        return place.needed(batch) if place is not None else None

    def _place_in(self, batch: Any) -> Mask | Lengths | Filling | None:
        if self._place is None and self._looks < _LOOKS:
            self._looks += 1
            found = [((), batch)] if isinstance(batch, torch.Tensor) else list(tensors(batch, _DEPTH))
            self._place = _named(found) or self._nameless(found) or self._filled_up(found)
        return self._place

    def _filled_up(self, found: Tensors) -> Filling | None:
        """Rows that were filled up in enough batches, the longest first."""
        for way, rows in found:
            value = _filled_with(rows)
            if value is not None:
                each = Filling(way, value)
                self._filled[each] = self._filled.get(each, 0) + 1
        known = {way: rows.shape[1] for way, rows in found if _is_table(rows)}
        often = [each for each, times in self._filled.items() if times >= _AGREEING and each.way in known]
        return max(often, key=lambda each: known[each.way], default=None)

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


def _is_table(value: torch.Tensor) -> bool:
    kinds = (torch.int16, torch.int32, torch.int64)
    return value.dim() == 2 and value.numel() > 0 and value.dtype in kinds


def _filled_with(rows: torch.Tensor) -> int | None:
    """The value in whose runs, of unlike length, most rows end; None where it is elsewhere too, or there is none."""
    if not _is_table(rows) or len(rows) < 2 or rows.shape[1] < _LEAST_POSITIONS:
        return None
    value = int(rows[:, -1].mode().values)
    ends = _before_end(rows.ne(value))
    real = int(ends.sum())
    elsewhere = int(rows.eq(value).sum()) - (rows.numel() - real)
    filled = int(ends.lt(rows.shape[1]).sum())
    unlike = int(ends.min()) != int(ends.max())
    few = elsewhere <= _ELSEWHERE * real
    return value if unlike and few and filled >= _FILLED_ROWS * len(rows) else None


def _before_end(holds: torch.Tensor) -> torch.Tensor:
    """Of each row, the positions up to its last that holds data."""
    return (holds * torch.arange(1, holds.shape[1] + 1)).amax(1)


def _name(way: Way) -> str:
    return str(way[-1][1]) if way else ""
