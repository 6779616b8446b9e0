"""Timelines in one Arrow file: a row per step and rank, the rest as JSON in the schema's metadata.

A checksum of all of it is stored too: Arrow alone would read many a damaged file without a word.
"""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts.codec import SCHEMA, check_schema, from_plain, parse_json, to_plain, write_bytes
from hotlap.facts.timeline import Stage, Steps, Timeline

_KEY, _CHECKSUM = b"hotlap", b"crc32"
_COLUMNS = ("start", "wall", "samples", "tokens", "padded", "micro")
_NOTHING = Steps(start=(), wall=(), stages={}, samples=(), tokens=(), padded=(), micro=())


def write_timelines(path: Path, timelines: Sequence[Timeline]) -> None:
    """Write all timelines of a run, atomically."""
    import pyarrow as pa

    names = [*_COLUMNS, *Stage]
    ranks = array("q", [each.rank for each in timelines for _ in range(len(each.steps))])
    columns = {"rank": ranks} | {
        name: array("q", [value for each in timelines for value in _column(each.steps, name)])
        for name in names
    }
    rest = [to_plain(replace(each, steps=_NOTHING)) for each in timelines]
    described = json.dumps({"schema": SCHEMA, "timelines": rest}).encode()
    metadata = {_KEY: described, _CHECKSUM: _checksum(described, columns)}
    arrays = [
        pa.Array.from_buffers(pa.int64(), len(each), [None, pa.py_buffer(each)]) for each in columns.values()
    ]
    table = pa.Table.from_arrays(arrays, names=[str(name) for name in columns]).replace_schema_metadata(
        metadata
    )
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    write_bytes(path, sink.getvalue().to_pybytes())


def read_timelines(path: Path) -> tuple[Timeline, ...]:
    """Read them back; a missing, torn or newer file is refused with its name."""
    import pyarrow as pa

    if not path.is_file():
        raise FactError(
            f"there is no {path.name} in {path.parent}.", "is this the folder of a finished hotlap run?"
        )
    try:
        with pa.memory_map(str(path)) as source:
            table = pa.ipc.open_file(source).read_all().combine_chunks()
        stored = table.schema.metadata
        described = parse_json(stored[_KEY])
        check_schema(described, path)
        columns = {name: _integers(table.column(str(name))) for name in ("rank", *_COLUMNS, *Stage)}
        if stored.get(_CHECKSUM, b"") not in (b"", _checksum(stored[_KEY], columns)):
            raise ValueError("its checksum is wrong")
        timelines = [from_plain(Timeline, plain, path.name) for plain in described["timelines"]]
        return tuple(replace(each, steps=_steps_of(each.rank, columns)) for each in timelines)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise FactError(f"{path} is damaged: {reason}.", "record the run again: hotlap profile ...") from None


def _checksum(described: bytes, columns: Mapping[str, array[int]]) -> bytes:
    total = zlib.crc32(described)
    for column in columns.values():
        total = zlib.crc32(column, total)
    return str(total).encode()


def _column(steps: Steps, name: str) -> Sequence[int]:
    return steps.stages.get(Stage(name), [0] * len(steps)) if name in set(Stage) else getattr(steps, name)


def _integers(column: Any) -> array[int]:
    values = array("q")
    for chunk in column.chunks:
        _, data = chunk.buffers()
        if data is not None:
            values.frombytes(memoryview(data)[chunk.offset * 8 : (chunk.offset + len(chunk)) * 8])
    return values


def _steps_of(rank: int, columns: Mapping[str, array[int]]) -> Steps:
    ranks = columns["rank"]
    first, count = (ranks.index(rank), ranks.count(rank)) if rank in ranks else (0, 0)
    own = {name: column[first : first + count] for name, column in columns.items()}
    stages = {stage: own[stage] for stage in Stage}
    return Steps(stages=stages, **{name: own[name] for name in _COLUMNS})
