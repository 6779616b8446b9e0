"""Transforms that are random stay live: only what they are given is kept.

In another process each transform is replaced by a recorder that returns a hole. Where the item then comes out
with the hole in it, the transform is the last that touches that part, and the item can be made again from what
the transform was given. Where the dataset does anything else with the result, it fails on the hole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hotlap.data.cache.shape import Hole
from hotlap.data.cache.source import nested

NAMES = ("transform", "augment")  # an attribute with one of these in its name is taken for a transform

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
Places = dict[str, tuple[Any, str]]


def transforms_of(dataset: Any) -> Places:
    """Path of each transform, to the dataset that holds it and the name of the attribute."""
    return {
        f"{path}.{name}".lstrip("."): (holder, name)
        for path, holder in nested(dataset)
        for name, value in (vars(holder) if hasattr(holder, "__dict__") else {}).items()
        if callable(value) and any(word in name.lower() for word in NAMES)
    }


class Recorder:
    """Notes what transforms are given, in the order in which they are called."""

    def __init__(self, dataset: Any) -> None:
        self._calls: list[Call] = []
        self._saved = {path: getattr(*place) for path, place in transforms_of(dataset).items()}
        self._places = transforms_of(dataset)

    def fetch(self, fetch: Callable[[int], Any], row: int) -> tuple[Any, tuple[Call, ...]]:
        """The item with holes, and the calls that fill them."""
        self._calls = []
        for path, (holder, name) in self._places.items():
            setattr(holder, name, self._stub(path))
        try:
            return fetch(row), tuple(self._calls)
        finally:
            for path, (holder, name) in self._places.items():
                setattr(holder, name, self._saved[path])

    def _stub(self, path: str) -> Callable[..., Hole]:
        def record(*args: Any, **kwargs: Any) -> Hole:
            self._calls.append((path, args, kwargs))
            return Hole(len(self._calls) - 1, len(args))

        return record


def replay(kept: tuple[Any, tuple[Call, ...]], places: Mapping[str, tuple[Any, str]]) -> Any:
    """The item, its transforms called now."""
    item, calls = kept
    results: list[Any] = []
    for path, args, kwargs in calls:
        results.append(getattr(*places[path])(*fill(args, results), **fill(kwargs, results)))
    return fill(item, results)


def fill(value: Any, results: list[Any]) -> Any:
    """The value with each hole replaced by the result of its call."""
    kind = type(value)
    if kind is Hole:
        return results[value.call] if value.part is None else results[value.call][value.part]
    if kind is dict:
        return {key: fill(each, results) for key, each in value.items()}
    if kind is list:
        return [fill(each, results) for each in value]
    if kind is tuple:
        return tuple(fill(each, results) for each in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind(*(fill(each, results) for each in value))
    return value
