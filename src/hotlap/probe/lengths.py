"""How long a sequence item is, and the same item, or batch, cut short."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

TOKENS = "input_ids"  # of the items that tokenizers make


def length_of(item: Any) -> int | None:
    """The first dimension of the first part of an item that has one; None for numbers and text."""
    if (size := _own_length(item)) is not None:
        return size
    return next((size for part in _parts(item) if (size := length_of(part)) is not None), None)


def cut(item: Any, most: int) -> Any:
    """The item with its sequences not longer than `most`; parts of another length than the item's stay."""
    size = length_of(item)
    if size is None or size <= most:
        return item

    def shortened(part: Any) -> Any:
        own = _own_length(part)
        return None if own is None else part[:most] if own == size else part

    return rebuilt(item, shortened)


def rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same containers with what `change` makes of their parts, and what is None to it as it is."""
    changed = change(value)
    if changed is not None:
        return changed
    if isinstance(value, Mapping):
        parts = {key: rebuilt(part, change) for key, part in value.items()}
        return parts if type(value) is dict else type(value)(parts)  # type: ignore[call-arg]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(rebuilt(part, change) for part in value))
    if isinstance(value, list | tuple):
        return type(value)(rebuilt(part, change) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{each.name: rebuilt(getattr(value, each.name), change) for each in fields(value)}
        )
    return value


def _own_length(value: Any) -> int | None:
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    if isinstance(value, list) and value and all(isinstance(each, int | float) for each in value):
        return len(value)
    return None


def _parts(item: Any) -> Iterator[Any]:
    if isinstance(item, Mapping):
        if TOKENS in item:
            yield item[TOKENS]
        yield from item.values()
    elif isinstance(item, list | tuple):
        yield from item
    elif is_dataclass(item) and not isinstance(item, type):
        yield from (getattr(item, each.name) for each in fields(item))
