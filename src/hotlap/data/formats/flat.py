"""Flat arrays in one memory-mapped file, with offsets: the quickest to read.

What it stores
    All values of a field end to end, its offsets, and its shapes: fixed and variable lengths alike.
Who reads it
    hotlap.data.open_shards. A batch of arrays of one shape is gathered by one copy.
What it costs
    A shard is held in memory while it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np

from hotlap.data.formats import Column, ColumnShardWriter, build_column, decoded, value_at, view_at
from hotlap.data.samples import Array, SampleError, read_arrays, write_arrays
from hotlap.data.spans import Recycler, Spans
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader, ShardWriter


class Flat(ShardFormat):
    id: ClassVar[str] = "flat"
    suffix: ClassVar[str] = ".flat"

    def write(self, path: Path) -> ShardWriter:
        return FlatWriter(path)

    def open(self, path: Path) -> ShardReader:
        return FlatReader(path)


class FlatWriter(ColumnShardWriter):
    def close(self) -> None:
        keys = self._rows.keys
        columns = {"": build_column("", keys, keys)} if keys else {}
        columns |= self._rows.columns()
        arrays: list[Array] = []
        head = {name: {"kind": column.kind, **_placed(column, arrays)} for name, column in columns.items()}
        write_arrays(self._path, {"samples": len(keys), "columns": head}, arrays)


def _placed(column: Column, arrays: list[Array]) -> dict[str, int]:
    """Which arrays of the file are this column's; the offsets of numbers are known without being stored."""
    parts = {"values": column.values, "shapes": column.shapes}
    if column.kind not in ("int", "float", "bool"):
        parts["offsets"] = column.offsets
    places = {}
    for name, array in parts.items():
        if array is not None:
            places[name] = len(arrays)
            arrays.append(array)
    return places


class FlatReader(ShardReader):
    def __init__(self, path: Path) -> None:
        head, arrays = read_arrays(path)
        try:
            self._columns = {name: _column(each, arrays) for name, each in head["columns"].items()}
            self._fixed = {
                name: _stacked(each, head["samples"]) for name, each in self._columns.items() if name
            }
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise SampleError(f"{path} is damaged: {error}.", "pack it again") from None
        self._spare = Recycler()
        self._keys = _Keys(self._columns.pop("")) if self._columns else ()

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def read(self, position: int) -> Fields:
        return {name: value_at(each, position) for name, each in self._columns.items()}

    def view(self, position: int) -> Fields:
        return {name: view_at(each, position) for name, each in self._columns.items()}

    def gather(self, positions: Sequence[int]) -> Fields | None:
        if any(each is None for each in self._fixed.values()):
            return None
        wanted = np.asarray(positions)
        return {name: self._taken(each, wanted) for name, each in self._fixed.items() if each is not None}

    def _taken(self, rows: Array, wanted: Array) -> Array:
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < len(rows):
            raise IndexError(f"there is no row {wanted.min()} or {wanted.max()}: the shard holds {len(rows)}")
        target = self._spare.empty((len(wanted), *rows.shape[1:]), rows.dtype)
        # Rows are known to be there: any other mode than "raise" writes straight into the target.
        return rows.take(wanted, axis=0, out=target, mode="clip")

    def spans(self, positions: Sequence[int]) -> dict[str, Spans] | None:
        if any(each.kind == "bytes" for each in self._columns.values()):
            return None
        wanted = np.asarray(positions)
        found = {name: _spans(each, wanted) for name, each in self._columns.items() if _is_sequence(each)}
        return None if None in found.values() else cast(dict[str, Spans], found)


class _Keys(Sequence[str]):
    """The keys, made into text when they are asked for: a shard may hold millions."""

    def __init__(self, column: Column) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column.offsets) - 1

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        start, end = self._column.offsets[at], self._column.offsets[at + 1]
        return decoded(self._column.values[start:end].tobytes(), "text")


def _is_sequence(column: Column) -> bool:
    return column.shapes is not None and column.shapes.shape[1] > 0


def _spans(column: Column, wanted: Array) -> Spans | None:
    """None where the steps of these sequences have several shapes."""
    assert column.shapes is not None
    shapes = column.shapes[wanted]
    step = shapes[0, 1:]
    if len(step) and (shapes[:, 1:] != step).any():
        return None
    return Spans(column.values, column.offsets[wanted], shapes[:, 0], tuple(step.tolist()))


def _column(head: Mapping[str, Any], arrays: Sequence[Array]) -> Column:
    values = arrays[head["values"]]
    offsets = arrays[head["offsets"]] if "offsets" in head else np.arange(len(values) + 1)
    return Column(head["kind"], values, offsets, arrays[head["shapes"]] if "shapes" in head else None)


def _stacked(column: Column, samples: int) -> Array | None:
    """All samples as one array, where all have the same shape."""
    if column.kind in ("int", "float", "bool"):
        return column.values
    if column.shapes is None or (column.shapes != column.shapes[0]).any():
        return None
    return column.values.reshape(samples, *column.shapes[0])
