"""Parquet files, one or a folder of them: a sample for each row."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from hotlap.data.formats import format_named
from hotlap.data.pack.source import Arguments, SampleSource, files_fingerprint, no_arguments
from hotlap.data.samples import Fields, SampleError
from hotlap.ports.shard_format import ShardReader


class ParquetFiles(SampleSource):
    """Lists of numbers become arrays; the other values stay what they are."""

    @classmethod
    def recognises(cls, name: str) -> bool:
        return bool(_files(Path(name)))

    def __init__(self, name: str, arguments: Arguments) -> None:
        no_arguments(name, arguments)
        self._paths = _files(Path(name))
        self._readers: list[ShardReader] = [format_named("parquet").open(path) for path in self._paths]
        self._ends = list(itertools.accumulate(len(each.keys) for each in self._readers))

    @cached_property
    def keys(self) -> Sequence[str]:
        return [f"{index:09}" for index in range(self._ends[-1])]

    def read(self, index: int) -> Fields:
        file, row = self._place(index)
        return self._readers[file].read(row)

    def where(self, index: int) -> str:
        file, row = self._place(index)
        return f"row {row} of {self._paths[file]}"

    def fingerprint(self) -> str:
        return files_fingerprint(self._paths)

    def _place(self, index: int) -> tuple[int, int]:
        file = bisect.bisect_right(self._ends, index)
        return file, index - (self._ends[file - 1] if file else 0)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".parquet" else []
    if not path.is_dir():
        return []
    found = sorted(path.rglob("*.parquet"))
    if (path / "pack.json").exists() and found:
        raise SampleError(f"{path} is packed already.", "read it with hotlap.data.open_shards")
    return found
