"""Parquet files, one row for each sample.

What it stores
    Bytes as binary, arrays as lists with their shapes beside (`name.shape`) where they have several axes, numbers and
    text as themselves, everything else as JSON text.
Who reads it
    Arrow, pandas, polars, Spark, DuckDB, Hugging Face datasets, and hotlap.data.open_shards.
What it costs
    A row is read with its whole row group: good for scans, slow for single rows at random.
"""

from __future__ import annotations

import bisect
import json
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hotlap.data.formats import Array, Column, ColumnShardWriter, decoded
from hotlap.data.samples import SampleError
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader, ShardWriter

KEY = "__key__"
SHAPE = ".shape"
GROUP_BYTES = 4 * 2**20
"""A row group: large enough to compress and to read in one go, small enough that one row does not cost a long read."""
GROUPS_KEPT = 8
"""Row groups held decoded, so that neighbouring rows cost one read."""


class Parquet(ShardFormat):
    id: ClassVar[str] = "parquet"
    suffix: ClassVar[str] = ".parquet"

    def write(self, path: Path) -> ShardWriter:
        return ParquetWriter(path)

    def open(self, path: Path) -> ShardReader:
        return ParquetReader(path)


class ParquetWriter(ColumnShardWriter):
    def close(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays, kinds = {KEY: pa.array(self._rows.keys, pa.string())}, {}
        for name, column in self._rows.columns().items():
            kinds[name] = {"kind": column.kind, "dtype": column.values.dtype.str}
            arrays |= _arrow(name, column)
        table = pa.table(arrays).replace_schema_metadata({"hotlap": json.dumps(kinds)})
        rows = max(1, len(self._rows.keys) * GROUP_BYTES // max(1, table.nbytes))
        media = {name for name, each in kinds.items() if each["kind"] == "bytes"}  # compressed already
        pq.write_table(
            table,
            self._path,
            row_group_size=rows,
            compression={name: "none" if name in media else "zstd" for name in table.column_names},
            use_dictionary=False,
            write_statistics=[name for name in table.column_names if name not in media],
            write_page_checksum=True,
        )


class ParquetReader(ShardReader):
    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._path = path
        try:
            self._file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        except (pa.ArrowInvalid, OSError) as error:
            raise SampleError(f"{path} cannot be read as Parquet: {error}.", "pack it again") from None
        metadata = self._file.metadata
        self._kinds = json.loads((metadata.metadata or {}).get(b"hotlap", b"{}"))
        groups = [metadata.row_group(each).num_rows for each in range(metadata.num_row_groups)]
        self._ends = np.cumsum(groups, dtype=np.int64).tolist()
        self._lock = threading.Lock()  # Arrow's reader crashes where two threads use it at once
        self._group = lru_cache(maxsize=GROUPS_KEPT)(self._read_group)

    @property
    def keys(self) -> Sequence[str]:
        if KEY not in self._file.schema_arrow.names:
            return [str(each) for each in range(self._file.metadata.num_rows)]
        with self._lock:
            keys: list[str] = self._file.read(columns=[KEY]).column(0).to_pylist()
        return keys

    def read(self, position: int) -> Fields:
        group = bisect.bisect_right(self._ends, position)
        row = position - (self._ends[group - 1] if group else 0)
        with self._lock:
            columns = self._group(group)
        return {
            name: _value(columns, name, row, self._kinds.get(name))
            for name in columns
            if name != KEY and not (name.endswith(SHAPE) and name.removesuffix(SHAPE) in columns)
        }

    def _read_group(self, group: int) -> dict[str, Any]:
        import pyarrow as pa

        try:
            table = self._file.read_row_group(group)
        except (pa.ArrowException, OSError) as error:
            raise SampleError(
                f"row group {group} of {self._path} is damaged: {error}.", "pack it again"
            ) from None
        return {name: table.column(name).combine_chunks() for name in table.column_names}


def _arrow(name: str, column: Column) -> dict[str, Any]:
    import pyarrow as pa

    if column.kind in ("int", "float", "bool"):
        return {name: pa.array(column.values)}
    offsets = pa.array(column.offsets)
    if column.shapes is None:
        whole = {"bytes": pa.large_binary(), "text": pa.large_string(), "json": pa.large_string()}[
            column.kind
        ]
        buffers = [None, offsets.buffers()[1], pa.py_buffer(column.values)]
        return {name: pa.Array.from_buffers(whole, len(offsets) - 1, buffers)}
    arrays = {name: pa.LargeListArray.from_arrays(offsets, _numbers(column.values))}
    if column.shapes.shape[1] != 1:
        arrays[f"{name}{SHAPE}"] = pa.array(column.shapes.tolist(), pa.list_(pa.int64()))
    return arrays


def _numbers(values: Array) -> Any:
    """Arrow's array of the same numbers; what Arrow has no name for (complex, float8) is kept as bytes."""
    import pyarrow as pa

    try:
        return pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise SampleError(f"Parquet has no column of {values.dtype}.", "pack as tar or flat") from None


def _value(columns: Mapping[str, Any], name: str, row: int, kind: Mapping[str, str] | None) -> Any:
    cell = columns[name][row]
    if kind is None or kind["kind"] in ("int", "float", "bool"):
        return _foreign(cell)
    if kind["kind"] != "array":
        return decoded(cell.as_buffer().to_pybytes(), kind["kind"])
    array = np.array(cell.values.to_numpy(zero_copy_only=False)).astype(kind["dtype"], copy=False)
    shape = columns.get(f"{name}{SHAPE}")
    return array if shape is None else array.reshape(shape[row].as_py())


def _foreign(cell: Any) -> Any:
    """A value of a file that hotlap did not write: lists of numbers become arrays of their own type."""
    import pyarrow as pa

    if isinstance(cell, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar) and cell.is_valid:
        array = _as_array(cell.values)
        return cell.as_py() if array is None else array
    return cell.as_py()


def _as_array(values: Any) -> Array | None:
    """Numbers, or lists of them that are all of one length; None where they are something else."""
    import pyarrow as pa

    kind = values.type
    if values.null_count:
        return None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return np.array(values.to_numpy(zero_copy_only=False))
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    lengths = set(values.value_lengths().to_pylist())
    inner = _as_array(values.flatten())
    return (
        inner.reshape(len(values), -1, *inner.shape[1:]) if inner is not None and len(lengths) == 1 else None
    )
