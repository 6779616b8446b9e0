"""The shard formats: one file each, found by walking this folder; and the columns that some of them keep."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.samples import SampleError, plain_value
from hotlap.discover import pick, units
from hotlap.errors import UsageError
from hotlap.ports.shard_format import ShardFormat, ShardWriter

ENTRY_POINTS = "hotlap.formats"
"""The group in which a package names formats of its own."""


@cache
def all_formats() -> dict[str, ShardFormat]:
    """Every format by its id."""
    found = units(sys.modules[__name__], ShardFormat, ENTRY_POINTS)  # type: ignore[type-abstract]
    return {each.id: each for each in found}


def format_named(name: str) -> ShardFormat:
    """The format with this id; a typo gets the nearest one."""
    return all_formats()[pick("shard format", name, all_formats())]


def format_of(path: Path) -> ShardFormat:
    """The format of a shard that no pack.json describes."""
    for each in all_formats().values():
        if each.recognises(path):
            return each
    known = ", ".join(sorted({each.suffix for each in all_formats().values()}))
    raise UsageError(f"{path} is no shard that hotlap reads.", f"name a folder of shards, or a file: {known}")


Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Column:
    """`kind` is array, bytes, text, int, float, bool or json; sample i owns `values[offsets[i]:offsets[i + 1]]`."""

    kind: str
    values: Array
    offsets: Array
    shapes: Array | None


class Rows:
    """Samples as they come, to be turned into columns: all of them have the same fields."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._fields: dict[str, list[Any]] = {}

    def add(self, key: str, fields: Mapping[str, Any]) -> None:
        if self.keys and fields.keys() != self._fields.keys():
            raise SampleError(
                f"sample '{key}' has the fields {sorted(fields)}, not {sorted(self._fields)}.",
                "give every sample the same fields, or pack as tar",
            )
        self.keys.append(key)
        for name, value in fields.items():
            kept = bytes(value) if isinstance(value, memoryview) else value
            self._fields.setdefault(name, []).append(kept)

    def columns(self) -> dict[str, Column]:
        return {name: build_column(name, self.keys, self._fields[name]) for name in sorted(self._fields)}


class ColumnShardWriter(ShardWriter):
    """Keeps samples until the shard is closed; what writes the columns then is the format's own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rows = Rows()

    def add(self, key: str, fields: Mapping[str, Any]) -> None:
        self._rows.add(key, fields)

    def discard(self) -> None:
        self._rows = Rows()


def build_column(name: str, keys: Sequence[str], values: Sequence[Any]) -> Column:
    """One field of all samples; where they do not fit together, the first that does not is named."""
    kind = _kind_of(values)
    if kind == "array":
        return _array_column(name, keys, values)
    if kind in ("int", "float", "bool"):
        numbers: Array = np.asarray(
            values, dtype={"int": np.int64, "float": np.float64, "bool": np.bool_}[kind]
        )
        return Column(kind, numbers, np.arange(len(values) + 1, dtype=np.int64), None)
    if kind == "unfit":
        odd = next(at for at, each in enumerate(values) if _scalar_kind(each) != _scalar_kind(values[0]))
        raise SampleError(
            f"field '{name}' is {_scalar_kind(values[0])} in sample '{keys[0]}' and {_scalar_kind(values[odd])} "
            f"in sample '{keys[odd]}'.",
            "give a field the same type in every sample, or pack as tar",
        )
    return _blob_column(kind, [_encoded(each, kind) for each in values])


def value_at(column: Column, index: int) -> Any:
    """The value of one sample, as a copy of its own."""
    value = view_at(column, index)
    return value.copy() if column.kind == "array" else value


def view_at(column: Column, index: int) -> Any:
    """The same, but an array lies where the column does."""
    part = column.values[column.offsets[index] : column.offsets[index + 1]]
    if column.shapes is not None:
        return part if column.shapes.shape[1] == 1 else part.reshape(column.shapes[index])
    if column.kind in ("int", "float", "bool"):
        return part[0].item()
    return decoded(part.tobytes(), column.kind)


def decoded(blob: bytes, kind: str) -> Any:
    """The value of a blob."""
    if kind == "bytes":
        return blob
    return blob.decode("utf-8", "surrogatepass") if kind == "text" else json.loads(blob)


def _encoded(value: Any, kind: str) -> bytes:
    if kind == "bytes":
        return bytes(value)
    return value.encode("utf-8", "surrogatepass") if kind == "text" else json.dumps(value).encode()


def _kind_of(values: Sequence[Any]) -> str:
    kinds = {_scalar_kind(each) for each in values}
    if len(kinds) == 1:
        (kind,) = kinds
        return "json" if kind == "int" and not all(-(2**63) <= each < 2**63 for each in values) else kind
    return "unfit" if kinds & {"array", "bytes"} else "json"


def _scalar_kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, bytes | memoryview):
        return "bytes"
    name = {str: "text", int: "int", float: "float", bool: "bool"}.get(type(value))
    if name is None and not plain_value(value):
        raise SampleError(
            f"a value of type {type(value).__name__} cannot be stored.", "convert it to an array"
        )
    return name or "json"


def _array_column(name: str, keys: Sequence[str], arrays: Sequence[Array]) -> Column:
    first = arrays[0]
    if first.dtype.hasobject or first.dtype.fields:
        raise SampleError(f"field '{name}' is an array of {first.dtype}.", "convert it to plain numbers")
    for key, each in zip(keys, arrays, strict=True):
        if each.dtype != first.dtype or each.ndim != first.ndim:
            raise SampleError(
                f"field '{name}' is {first.dtype} with {first.ndim} axes in sample '{keys[0]}' "
                f"and {each.dtype} with {each.ndim} in sample '{key}'.",
                "give a field the same type in every sample, or pack as tar",
            )
    offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum([each.size for each in arrays], out=offsets[1:])
    shapes = np.asarray([each.shape for each in arrays], dtype=np.int64).reshape(len(arrays), first.ndim)
    return Column("array", np.concatenate([each.reshape(-1) for each in arrays]), offsets, shapes)


def _blob_column(kind: str, blobs: Sequence[bytes]) -> Column:
    offsets = np.zeros(len(blobs) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in blobs], out=offsets[1:])
    return Column(kind, np.frombuffer(b"".join(blobs), dtype=np.uint8), offsets, None)
