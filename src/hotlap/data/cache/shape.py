"""The structure of an item: containers, and leaves that each become a column of the cache.

An item is taken apart into leaves and put together again, equal in types, dtypes, shapes and the order of its
strides. What is no plain container, array or number is a leaf of kind `object` and kept as a pickle.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch

from hotlap.data.cache.messages import CannotCacheError

LARGEST_INT = 2**63
NUMBERS = {bool: "bool", int: "int", float: "float"}


@dataclass(frozen=True)
class Leaf:
    """`shape` is None where it varies over items; `order` has the dimension of the largest stride first."""

    kind: str  # tensor | array | scalar | bool | int | float | str | bytes | ints | floats | none | hole | object
    dtype: str = ""
    shape: tuple[int, ...] | None = ()
    order: tuple[int, ...] = ()


@dataclass(frozen=True)
class Node:
    """A tuple, list, dict or named tuple of other parts; `cls` is where a named tuple's class is found."""

    kind: str
    keys: tuple[Any, ...]
    parts: tuple[Shape, ...]
    cls: str = ""


Shape = Leaf | Node


@dataclass(frozen=True)
class Hole:
    """Stands in an item where the result of a live transform belongs; `part` where the result is unpacked."""

    call: int
    arity: int = field(default=1, compare=False)
    part: int | None = None

    def __iter__(self) -> Iterator[Hole]:
        if self.arity < 2 or self.part is not None:
            raise TypeError("the result of a transform of one argument cannot be unpacked")
        return iter([Hole(self.call, self.arity, part) for part in range(self.arity)])


_LISTS = Leaf("object", "list", None)


class Mismatch(Exception):  # noqa: N818
    """Two items differ in structure."""

    def __init__(self, at: str, what: str) -> None:
        super().__init__(f"{at or 'the item'} {what}")


def shape_of(item: Any, at: str = "") -> Shape:
    """The structure of one item."""
    kind = type(item)
    if kind is dict and all(type(key) in (str, int) for key in item):
        return Node(
            "dict", tuple(item), tuple(shape_of(value, f"{at}[{key!r}]") for key, value in item.items())
        )
    if kind is list and _numbers(item):
        return Leaf(f"{NUMBERS[type(item[0])]}s", shape=None)
    if kind in (list, tuple):
        parts = tuple(shape_of(value, f"{at}[{number}]") for number, value in enumerate(item))
        return Node(kind.__name__, tuple(range(len(item))), parts)
    if isinstance(item, tuple) and hasattr(item, "_fields") and _importable(kind):
        parts = tuple(shape_of(value, f"{at}.{key}") for key, value in zip(item._fields, item, strict=True))
        return Node("named", tuple(item._fields), parts, f"{kind.__module__}:{kind.__qualname__}")
    return _leaf(item, at)


def leaves_of(shape: Shape) -> list[Leaf]:
    """In the order of `take_apart`."""
    if isinstance(shape, Leaf):
        return [shape]
    return [leaf for part in shape.parts for leaf in leaves_of(part)]


def take_apart(item: Any, shape: Shape) -> list[Any]:
    """The values of the leaves; raises Mismatch where the item has another structure."""
    found = shape_of(item)
    if found != shape and widened(shape, found) != shape:
        raise Mismatch("", "has another structure")
    return list(values_of(item, shape))


def put_together(shape: Shape, values: Iterator[Any]) -> Any:
    """The item again, of values in the order of the leaves."""
    if isinstance(shape, Leaf):
        return next(values)
    parts = [put_together(part, values) for part in shape.parts]
    if shape.kind == "dict":
        return dict(zip(shape.keys, parts, strict=True))
    if shape.kind == "named":
        return named_class(shape)(*parts)
    return parts if shape.kind == "list" else tuple(parts)


def put_all_together(shape: Shape, columns: Iterator[list[Any]], count: int) -> list[Any]:
    """Many items at once, of the values of each leaf."""
    if isinstance(shape, Leaf):
        return next(columns)
    parts = [put_all_together(part, columns, count) for part in shape.parts]
    rows = list(zip(*parts, strict=True)) if parts else [()] * count
    if shape.kind == "tuple":
        return rows
    if shape.kind == "dict":
        return [dict(zip(shape.keys, row, strict=True)) for row in rows]
    return list(map(list, rows)) if shape.kind == "list" else list(map(named_class(shape)._make, rows))


def widened(one: Shape, two: Shape, at: str = "") -> Shape:
    """A structure that holds items of both; raises Mismatch where there is none."""
    if one == two:
        return one
    if isinstance(one, Node) and isinstance(two, Node) and _same_keys(one, two):
        pairs = zip(one.keys, one.parts, two.parts, strict=True)
        return replace(one, parts=tuple(widened(mine, other, f"{at}[{key!r}]") for key, mine, other in pairs))
    if _listlike(one) and _listlike(two):
        return _LISTS
    if isinstance(one, Leaf) and isinstance(two, Leaf) and (one.kind, one.dtype) == (two.kind, two.dtype):
        if len(one.order) == len(two.order):
            order = one.order if one.order == two.order else tuple(range(len(one.order)))
            return replace(one, shape=None if one.shape != two.shape else one.shape, order=order)
        raise Mismatch(at, f"has {len(one.order)} dimensions in one item and {len(two.order)} in another")
    raise Mismatch(at, f"is {_told(one)} in one item and {_told(two)} in another")


def hole_of(leaf: Leaf) -> Hole:
    call, _, part = leaf.dtype.partition(":")
    return Hole(int(call), part=int(part) if part else None)


def as_json(shape: Shape) -> dict[str, Any]:
    if isinstance(shape, Leaf):
        return asdict(shape)
    return {
        "kind": shape.kind,
        "keys": shape.keys,
        "cls": shape.cls,
        "parts": [as_json(each) for each in shape.parts],
    }


def from_json(told: dict[str, Any]) -> Shape:
    if "parts" in told:
        parts = tuple(from_json(each) for each in told["parts"])
        return Node(told["kind"], tuple(told["keys"]), parts, told["cls"])
    shape = None if told["shape"] is None else tuple(told["shape"])
    return Leaf(told["kind"], told["dtype"], shape, tuple(told["order"]))


def named_class(node: Node) -> Any:
    module, _, name = node.cls.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def values_of(item: Any, shape: Shape) -> Iterator[Any]:
    """The values of the leaves of an item that is known to have this structure."""
    if isinstance(shape, Leaf):
        yield item
        return
    for key, part in zip(shape.keys, shape.parts, strict=True):
        yield from values_of(getattr(item, key) if shape.kind == "named" else item[key], part)


def _leaf(item: Any, at: str) -> Leaf:
    kind = type(item)
    if kind is torch.Tensor:
        return _tensor(item, at)
    if kind is np.ndarray and item.dtype.kind in "biufcmMSU" and item.dtype.itemsize:
        return Leaf("array", item.dtype.str, item.shape, _order(item.strides, item.shape))
    if isinstance(item, np.generic) and item.dtype.kind in "biufcmM":
        return Leaf("scalar", item.dtype.str)
    if kind is int and -LARGEST_INT <= item < LARGEST_INT:
        return Leaf("int", "<i8")
    if kind in (bool, float):
        return Leaf(NUMBERS[kind], {bool: "|b1", float: "<f8"}[kind])
    if kind in (str, bytes):
        return Leaf(kind.__name__, shape=None)
    if kind is Hole:
        return Leaf("hole", f"{item.call}:{'' if item.part is None else item.part}")
    return Leaf("none") if item is None else Leaf("object", f"{kind.__module__}.{kind.__qualname__}", None)


def _tensor(item: torch.Tensor, at: str) -> Leaf:
    where = f"{at or 'the item'} is a tensor"
    if item.device.type != "cpu":
        raise CannotCacheError(f"{where} on {item.device}, and only items in main memory are kept")
    if item.requires_grad:
        raise CannotCacheError(f"{where} that requires a gradient")
    if item.__dict__:
        raise CannotCacheError(f"{where} with attributes ({', '.join(item.__dict__)})")
    if item.layout is not torch.strided or item.is_quantized or item.is_conj() or item.is_neg():
        return Leaf("object", f"torch.{item.layout}", None)
    dtype = str(item.dtype).removeprefix("torch.")
    return Leaf("tensor", dtype, tuple(item.shape), _order(item.stride(), item.shape))


def _order(strides: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Dimensions of size 1 have no stride to speak of: they stay where they are."""
    dims = range(len(sizes))
    real = [dim for dim in dims if sizes[dim] > 1]
    by_stride = iter(sorted(real, key=lambda dim: -abs(strides[dim])))
    return tuple(next(by_stride) if sizes[dim] > 1 else dim for dim in dims)


def _numbers(item: list[Any]) -> bool:
    """Whether a list holds nothing but ints that fit, or nothing but floats."""
    kinds = set(map(type, item))
    if kinds == {int}:
        return bool(min(item) >= -LARGEST_INT and max(item) < LARGEST_INT)
    return kinds == {float}


def _importable(kind: type) -> bool:
    try:
        return named_class(Node("named", (), (), f"{kind.__module__}:{kind.__qualname__}")) is kind
    except (ImportError, AttributeError):
        return False


def _same_keys(one: Node, two: Node) -> bool:
    return (one.kind, one.keys, one.cls) == (two.kind, two.keys, two.cls)


def _listlike(shape: Shape) -> bool:
    """Lists of varying length, also empty ones, are kept as they are."""
    return shape.kind in ("list", "ints", "floats") or shape == _LISTS


def _told(shape: Shape) -> str:
    if isinstance(shape, Leaf):
        return " ".join(word for word in (shape.kind, shape.dtype) if word)
    return f"a {shape.kind} of {', '.join(map(str, shape.keys[:8])) or 'nothing'}"
