"""Shards as a map-style dataset: any sample by its number, whole batches at once.

from hotlap.data import open_shards
data = open_shards("packed/")           # or a file, a pattern: audio_{0..7}.tar, audio__OP_0..7_CL_.tar
data[5], data.__getitems__([3, 1, 2]), data.gather([3, 1, 2])
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import json
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from hotlap.data.budget import usable_cores
from hotlap.data.decode import (
    THREADED,
    Audio,
    Decoder,
    decode_fields,
    default_decoders,
    needs_threads,
    write_float,
)
from hotlap.data.formats import format_named, format_of
from hotlap.data.samples import SampleError, restore
from hotlap.data.spans import Spans, padded
from hotlap.errors import FactError, UsageError
from hotlap.facts.codec import SCHEMA, check_schema, from_plain, to_plain
from hotlap.ports.shard_format import Fields, ShardFormat, ShardReader

Array = np.ndarray[Any, Any]
READERS_KEPT = 128
"""Open shards: each holds a file open, and a process may often hold no more than 1024."""


def open_shards(
    path: str | Path, decode: bool | Mapping[str, Decoder] = True, threads: int | None = None
) -> ShardDataset:
    """The samples of a folder that `hotlap pack` wrote, of a shard, or of the shards that a pattern names.

    `decode` may replace decoders by suffix: `{"jpg": Picture(size=(256, 704))}`; with False, bytes stay
    bytes. `threads` decode a batch; without it, as many as this process has cores.
    """
    decoders = {} if decode is False else default_decoders()
    decoders |= dict(decode) if isinstance(decode, Mapping) else {}
    return ShardDataset(_expand(str(path)), decoders, threads)


class ShardDataset:
    """Samples by number. It may be pickled into workers: each opens the shards for itself."""

    def __init__(self, paths: Sequence[Path], decoders: Mapping[str, Decoder], threads: int | None) -> None:
        self._decoders = dict(decoders)
        self._threads = threads or usable_cores()
        self._seal = read_seal(paths[0]) if len(paths) == 1 and paths[0].is_dir() else None
        self._paths = _shards(paths, self._seal)
        self._format: ShardFormat = (
            format_named(self._seal.format) if self._seal else format_of(self._paths[0])
        )
        self._template = self._seal.template if self._seal else None
        self._readers: OrderedDict[int, ShardReader] = OrderedDict()
        self._ends = list(itertools.accumulate(self._counts()))
        self._starts = [0, *self._ends[:-1]]
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: int) -> Any:
        return self._item(self._raw(*self._place(index)))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples in this order; where decoding is work, it is done in threads."""
        raw = [self._raw(*self._place(index)) for index in indices]
        if self._threads > 1 and len(raw) > 1 and needs_threads(raw[0], self._decoders):
            return list(self._executor().map(self._item, raw))
        return [self._item(each) for each in raw]

    def gather(self, indices: Sequence[int]) -> Fields:
        """A batch, one array for each field, of arrays that all have the same shape: one copy for each shard."""
        batch: Fields = {}
        for shard, places, rows in self._by_shard(indices):
            part = self._reader(shard).gather(cast(Sequence[int], rows))
            if part is None:
                raise UsageError(
                    f"{self._paths[shard]} holds fields of several shapes, or no flat arrays.",
                    "use data.padded or data.__getitems__, or pack arrays of one shape as flat",
                )
            if len(rows) == len(indices):
                return part
            for name, values in part.items():
                target = batch.setdefault(name, np.empty((len(indices), *values.shape[1:]), values.dtype))
                target[places] = values
        return batch

    def padded(self, indices: Sequence[int], value: float = 0) -> dict[str, tuple[Array, Array]]:
        """A batch of arrays or sounds of several lengths: each field padded to its longest, and the lengths."""
        return self._at_once(indices, value) or self._one_by_one(indices, value)

    def _at_once(self, indices: Sequence[int], value: float) -> dict[str, tuple[Array, Array]]:
        """Of sequences that lie in memory and are about as long as each other; nothing where one is of another kind."""
        parts: dict[str, list[tuple[Spans, Array]]] = {}
        for shard, places, rows in self._by_shard(indices):
            found = self._reader(shard).spans(cast(Sequence[int], rows))
            if not found or (parts and found.keys() != parts.keys()):
                return {}
            for name, spans in found.items():
                parts.setdefault(name, []).append((spans, places))
        batch = {name: padded(each, value) for name, each in parts.items()}
        return {name: each for name, each in batch.items() if each} if all(batch.values()) else {}

    def _one_by_one(self, indices: Sequence[int], value: float) -> dict[str, tuple[Array, Array]]:
        raw = [self._reader(shard).view(row) for shard, row in map(self._place, indices)]
        batch = {}
        for field, first in raw[0].items():
            if any(field not in each for each in raw):
                raise UsageError(
                    f"not all samples of the batch have the field '{field}'.", "use data.__getitems__"
                )
            name, _, suffix = field.rpartition(".")
            sound = self._decoders.get(suffix.lower())
            if isinstance(first, np.ndarray) and first.ndim:
                batch[field] = _padded([each[field] for each in raw], value, np.copyto, first.dtype)
            elif isinstance(first, bytes | memoryview) and isinstance(sound, Audio):
                samples = self._each(
                    sound.undecoded, [memoryview(each[field]) for each in raw], suffix.lower()
                )
                batch[name or "audio"] = _padded(samples, value, _into, np.dtype(np.float32))
        return batch

    def _each(
        self, decode: Callable[[memoryview], Array], contents: list[memoryview], suffix: str
    ) -> list[Array]:
        if self._threads > 1 and suffix in THREADED:
            return list(self._executor().map(decode, contents))
        return [decode(each) for each in contents]

    def key(self, index: int) -> str:
        """The name of a sample."""
        shard, row = self._place(index)
        return self._reader(shard).keys[row]

    @property
    def shards(self) -> tuple[Path, ...]:
        return tuple(self._paths)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_readers": OrderedDict(), "_pool": None}

    def _counts(self) -> Iterable[int]:
        if self._seal:
            return [each.samples for each in self._seal.shards]
        return [len(self._reader(number).keys) for number in range(len(self._paths))]

    def _place(self, index: int) -> tuple[int, int]:
        at = int(index) + (len(self) if index < 0 else 0)
        if not 0 <= at < len(self):
            raise IndexError(f"there is no sample {index}: the shards hold {len(self)}")
        shard = bisect.bisect_right(self._ends, at)
        return shard, at - (self._ends[shard - 1] if shard else 0)

    def _by_shard(self, indices: Sequence[int]) -> list[tuple[int, Array, Array]]:
        """Shard, places in the batch and rows in the shard of many samples."""
        at = np.asarray(indices, dtype=np.int64)
        if not at.size:
            return []
        if at.min() < 0:
            at = np.where(at < 0, at + len(self), at)
        low, high = int(at.min()), int(at.max())
        if low < 0 or high >= len(self):
            raise IndexError(f"there is no sample {low} or {high}: the shards hold {len(self)}")
        first, last = bisect.bisect_right(self._ends, low), bisect.bisect_right(self._ends, high)
        if first == last:
            return [(first, np.arange(len(at)), at - self._starts[first])]
        shards = np.searchsorted(self._ends, at, side="right")
        places = [(int(shard), np.flatnonzero(shards == shard)) for shard in np.unique(shards)]
        return [(shard, own, at[own] - self._starts[shard]) for shard, own in places]

    def _raw(self, shard: int, row: int) -> Fields:
        return self._reader(shard).read(row)

    def _item(self, fields: Fields) -> Any:
        if self._template is not None:
            return restore(fields, self._template)
        return decode_fields(fields, self._decoders)

    def _reader(self, shard: int) -> ShardReader:
        found = self._readers.get(shard)
        if found is None:
            try:
                found = self._readers[shard] = self._format.open(self._paths[shard])
            except OSError as error:
                what = f"shard {self._paths[shard]} cannot be read: {error.strerror}."
                raise SampleError(what, "pack again, or copy the whole folder") from None
            if len(self._readers) > READERS_KEPT:
                self._readers.popitem(last=False)
        return found

    def _executor(self) -> ThreadPoolExecutor:
        """Threads of this very process: after a fork the parent's are gone."""
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = (os.getpid(), ThreadPoolExecutor(self._threads, "hotlap-decode"))
        return self._pool[1]


def _padded(
    arrays: Sequence[Array], value: float, write: Callable[[Array, Array], None], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
    target = np.empty((len(arrays), lengths.max(), *arrays[0].shape[1:]), dtype)
    for row, length, array in zip(target, lengths, arrays, strict=True):
        write(row[:length], array)
        row[length:] = value
    return target, lengths


def _into(target: Array, samples: Array) -> None:
    write_float(samples, target)


def _expand(pattern: str) -> list[Path]:
    """`audio_{0..7}.tar` and NeMo's `audio__OP_0..7_CL_.tar` name eight files."""
    found = re.search(r"(?:\{|_OP_)(\d+)\.\.(\d+)(?:\}|_CL_)", pattern)
    if not found:
        return [Path(pattern)]
    first, last = found[1], found[2]
    width = len(first) if first.startswith("0") else 0
    names = (f"{number:0{width}}" for number in range(int(first), int(last) + 1))
    return [Path(f"{pattern[: found.start()]}{name}{pattern[found.end() :]}") for name in names]


def _shards(paths: Sequence[Path], seal: Seal | None) -> list[Path]:
    if seal:
        return [paths[0] / each.name for each in seal.shards]
    if paths and paths[0].is_dir():
        return _loose(paths[0])
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no shard {path}.", "check the name")
    return list(paths)


def _loose(folder: Path) -> list[Path]:
    """The shards of a folder without a seal, in the order of their numbers."""
    suffixes = [path for path in folder.iterdir() if path.suffix in (".tar", ".flat", ".parquet")]
    if not suffixes:
        remedy = "name a folder that hotlap pack wrote; one without it was not packed to the end"
        raise UsageError(f"{folder} holds no {SEAL} and no shards.", remedy)
    return sorted(
        suffixes, key=lambda path: ([int(each) for each in re.findall(r"\d+", path.stem)], path.name)
    )


# pack.json: what a finished folder of shards holds, with a checksum for every file. It is written last.


SEAL = "pack.json"
CHECKSUMS = "checksums.npy"
"""A CRC-32 of every sample, in order, so that a damaged one can be named."""


@dataclass(frozen=True)
class Shard:
    """One finished shard."""

    name: str
    samples: int


@dataclass(frozen=True)
class ShardFileInfo:
    """A file of the folder."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Seal:
    """`job` identifies what was packed and how; `template` is the structure of an item where there is one."""

    format: str
    job: str
    source: str
    samples: int
    shards: tuple[Shard, ...]
    files: Mapping[str, ShardFileInfo]
    template: Any = None


def seal_text(seal: Seal) -> str:
    """pack.json; it holds a checksum of itself."""
    plain = {"schema": SCHEMA, **to_plain(seal)}
    return json.dumps({**plain, "seal": _digest(plain)}, indent=1) + "\n"


def read_seal(folder: Path) -> Seal | None:
    """The seal of a folder, None where there is none; a damaged one is refused."""
    path = folder / SEAL
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        check_schema(plain, path)
        stored = plain.pop("seal", None)
    except FileNotFoundError:
        return None
    except (ValueError, OSError, AttributeError, TypeError) as error:
        raise FactError(
            f"{path} cannot be read: {error}.", "copy the folder again, or pack it again"
        ) from None
    if stored != _digest(plain):
        raise FactError(
            f"{path} has been changed since it was written.", "copy the folder again, or pack it again"
        )
    seal: Seal = from_plain(Seal, plain, SEAL)
    return seal


def file_digest(path: Path) -> ShardFileInfo:
    with path.open("rb") as file:
        return ShardFileInfo(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
