"""Tar shards that webdataset reads: one file for each field.

What it stores
    Bytes as `key.jpg`, arrays as `key.name.npy`, everything else in `key.json`.
Who reads it
    webdataset, any tool that reads tar, and hotlap.data.open_shards, which finds any sample by an index beside the tar.
What it costs
    A head of 512 bytes for each field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hotlap.data.samples import SampleError, plain_value
from hotlap.data.tarshards import NEMO_MANIFEST, Keys, MappedTar, TarWriter, from_npy, to_npy
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader, ShardWriter


class Tar(ShardFormat):
    id: ClassVar[str] = "tar"
    suffix: ClassVar[str] = ".tar"

    def write(self, path: Path) -> ShardWriter:
        return WebdatasetWriter(path)

    def open(self, path: Path) -> ShardReader:
        return WebdatasetReader(path)

    def recognises(self, path: Path) -> bool:
        return super().recognises(path) and not (path.parent / NEMO_MANIFEST).exists()

    def hints(self, folder: Path, shards: Sequence[str]) -> dict[str, str]:
        return {"webdataset": f"{folder}/{self.stem}{{0..{len(shards) - 1}}}{self.suffix}"}


class WebdatasetWriter(ShardWriter):
    def __init__(self, path: Path) -> None:
        self._tar = TarWriter(path)

    def add(self, key: str, fields: Mapping[str, Any]) -> None:
        values = {}
        for name in sorted(fields):
            value = fields[name]
            if isinstance(value, np.ndarray):
                self._tar.add(key, f"{name}.npy", _npy(value, name))
            elif isinstance(value, bytes | memoryview):
                self._tar.add(key, _media(name), value)
            elif plain_value(value):
                values[name] = value
            else:
                raise SampleError(
                    f"field '{name}' of sample '{key}' is a {type(value).__name__}.", "convert it to an array"
                )
        if values or not fields:
            self._tar.add(key, "json", json.dumps(values, sort_keys=True).encode())

    def close(self) -> None:
        self._tar.close()

    def discard(self) -> None:
        self._tar.discard()


class WebdatasetReader(ShardReader):
    def __init__(self, path: Path) -> None:
        self._tar = MappedTar(path)
        self._keys = Keys(self._tar.index)

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def read(self, position: int) -> Fields:
        files = self._tar.files(position)
        try:
            values = json.loads(bytes(files.pop("json"))) if "json" in files else {}
            fields = dict(values) if isinstance(values, dict) else {"json": values}
            for suffix, content in files.items():
                name, _, last = suffix.rpartition(".")
                is_array = last == "npy"
                fields[name if is_array and name else suffix] = from_npy(content) if is_array else content
        except ValueError as error:
            what = f"sample '{self._keys[position]}' of {self._tar.path} is damaged: {error}."
            raise SampleError(what, "pack it again") from None
        return fields


def _npy(value: np.ndarray[Any, Any], name: str) -> bytes:
    if value.dtype.hasobject:
        raise SampleError(f"field '{name}' is an array of Python objects.", "convert it to plain numbers")
    return to_npy(value)


def _media(name: str) -> str:
    if name == "json" or name.endswith(".npy"):
        raise SampleError(
            f"bytes cannot be stored as '{name}', which has a meaning of its own.", "rename the field"
        )
    return name
