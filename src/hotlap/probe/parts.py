"""The parts of a batch: tuples, dicts, dataclasses and containers of frameworks, and ways to the tensors in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

MOST_DEPTH = 6

Step = tuple[str, Any]  # item or attribute, and its key
Way = tuple[Step, ...]


def path_to_tensor(batch: Any, depth: int = 0) -> Way | None:
    """Keys and attribute names that lead to the first tensor, None where there is none."""
    if isinstance(batch, torch.Tensor):
        return ()
    if depth >= MOST_DEPTH:
        return None
    for step, inner in children(batch):
        rest = path_to_tensor(inner, depth + 1)
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
