"""Reads off a batch how many samples it holds and, where lengths or a padding mask are visible, how many tokens.

Batches hide their tensors in tuples, dicts, dataclasses and containers of frameworks; the way to the first tensor is
found once and then followed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from hotlap.probe import marks

_LENGTH_KEYS = (
    "lengths",
    "length",
    "input_lengths",
    "seq_lens",
    "seq_len",
    "audio_lengths",
    "feature_lengths",
)
_MASK_KEYS = (
    "attention_mask",
    "padding_mask",
    "pad_mask",
    "mask",
    "src_key_padding_mask",
    "key_padding_mask",
)
_PADDING_IS_TRUE = ("padding_mask", "pad_mask", "src_key_padding_mask", "key_padding_mask")
_TOKENS_EVERY = 8  # batches: summing a mask costs microseconds, a run has thousands
_MOST_DEPTH = 6
_MOST_SEARCHES = (
    32  # of a loader whose batches differ or hold no tensor: each is a walk through all of a batch
)


class BatchReader:
    """Writes down the facts of the batches of one loader."""

    def __init__(self, loader: int) -> None:
        self.loader = loader
        self._path: tuple[Any, ...] | None = None
        self._searches = _MOST_SEARCHES
        self.batches = 0
        self._has_tokens = True

    def read(self, batch: Any, append: Callable[[int], None]) -> None:
        append(self.loader << 8 | marks.LOADER_ID)
        size = self._size(batch)
        if size >= 0:
            append(size << 8 | marks.SAMPLES)
        self.batches += 1
        if self._has_tokens and self.batches % _TOKENS_EVERY == 1:
            counted = count_tokens(batch)
            self._has_tokens = counted is not None
            if counted is not None:
                append(counted[0] << 8 | marks.TOKENS)
                append(counted[1] << 8 | marks.PADDED)

    def _size(self, batch: Any) -> int:
        tensor = follow(batch, self._path) if self._path is not None else None
        if tensor is None and self._searches:
            self._searches -= 1
            self._path = path_to_tensor(batch)
            tensor = follow(batch, self._path) if self._path is not None else None
        if tensor is None:
            return len(batch) if isinstance(batch, list | tuple) else -1
        return tensor.shape[0] if tensor.dim() else 1


def path_to_tensor(batch: Any, depth: int = 0) -> tuple[Any, ...] | None:
    """Keys and attribute names that lead to the first tensor, None where there is none."""
    if isinstance(batch, torch.Tensor):
        return ()
    if depth >= _MOST_DEPTH:
        return None
    for step, inner in _children(batch):
        rest = path_to_tensor(inner, depth + 1)
        if rest is not None:
            return (step, *rest)
    return None


def follow(batch: Any, path: tuple[Any, ...]) -> torch.Tensor | None:
    """The tensor at the end of a path; None where this batch is built otherwise."""
    try:
        for kind, key in path:
            batch = batch[key] if kind == "item" else getattr(batch, key)
    except (KeyError, IndexError, AttributeError, TypeError):
        return None
    return batch if isinstance(batch, torch.Tensor) else None


def count_tokens(batch: Any) -> tuple[int, int] | None:
    """(real tokens, places that only pad), where the batch shows them."""
    for name, value in _named_tensors(batch):
        if name in _MASK_KEYS and value.dim() == 2:
            true = int(value.ne(0).sum())
            false = value.numel() - true
            return (false, true) if name in _PADDING_IS_TRUE else (true, false)
        if name in _LENGTH_KEYS and value.dim() == 1 and value.numel():
            real, longest = int(value.sum()), int(value.max())
            return real, _padded_length(batch, value.numel(), longest) * value.numel() - real
    return None


def _padded_length(batch: Any, count: int, longest: int) -> int:
    """The padded length: another size of a tensor with one row per length, the longest itself or what exceeds it."""
    for _, value in _named_tensors(batch):
        if value.dim() >= 2 and value.shape[0] == count:
            sizes = [size for size in value.shape[1:] if size >= longest]
            return longest if longest in sizes or not sizes else sizes[0]
    return longest


def _named_tensors(batch: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for (_, key), value in _children(batch):
        if isinstance(value, torch.Tensor) and value.device.type == "cpu":
            yield str(key), value


def _children(batch: Any) -> Iterator[tuple[tuple[str, Any], Any]]:
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
