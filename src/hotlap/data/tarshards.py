"""Tar files that webdataset reads, written the same way every time, and read at random by an index.

The index is written once, stored beside the tar and given the tar's time of change: where the two differ, or the size
does, the tar has changed since and is scanned again.
"""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.samples import Array, SampleError, read_arrays, write_arrays

NEMO_MANIFEST = "tarred_audio_manifest.json"
_BLOCK = tarfile.BLOCKSIZE
_NAME = re.compile(r"^((?:.*/|)[^./][^./]*)[.]([^/]*)$")
"""A sample's key goes up to the first dot of the file name; webdataset splits names in the same way."""


@dataclass(frozen=True)
class Member:
    """One file of a tar. `suffix` is its name without the key: `jpg`, `left.jpg`."""

    key: str
    suffix: str
    offset: int
    size: int


class TarWriter:
    """Appends files with fixed times and owners, and notes where they begin."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("wb")
        self._members: list[Member] = []
        self._at = 0

    def add(self, key: str, suffix: str, content: bytes | memoryview) -> None:
        info = tarfile.TarInfo(f"{key}.{suffix}")
        info.size, info.mode = len(content), 0o644
        header = info.tobuf(tarfile.GNU_FORMAT)
        self._members.append(Member(key, suffix, self._at + len(header), len(content)))
        self._file.write(header)
        self._file.write(content)
        padding = -len(content) % _BLOCK
        self._file.write(bytes(padding))
        self._at += len(header) + len(content) + padding

    def close(self) -> None:
        end = self._at + 2 * _BLOCK
        self._file.write(bytes(2 * _BLOCK + -end % tarfile.RECORDSIZE))
        self._file.close()
        store_index(self._path, self._members)

    def discard(self) -> None:
        self._file.close()


def index_path(tar: Path) -> Path:
    return tar.with_name(f"{tar.name}.index")


class TarIndex:
    """Where the files of each sample are."""

    def __init__(self, suffixes: Sequence[str], arrays: Sequence[Array]) -> None:
        self._suffixes = suffixes
        self._text, self._key_ends, self._first, self._which, self._offsets, self._sizes = arrays

    def __len__(self) -> int:
        return len(self._key_ends)

    def key(self, position: int) -> str:
        start = self._key_ends[position - 1] if position else 0
        return self._text[start : self._key_ends[position]].tobytes().decode("utf-8", "surrogateescape")

    def files(self, position: int) -> Iterator[tuple[str, int, int]]:
        """Suffix, offset and size of every file of a sample."""
        for at in range(self._first[position], self._first[position + 1]):
            yield self._suffixes[self._which[at]], int(self._offsets[at]), int(self._sizes[at])


def build_index(members: Sequence[Member]) -> tuple[list[str], list[Array]]:
    """Files of one key that follow each other are one sample, as in webdataset."""
    starts = [at for at, each in enumerate(members) if at == 0 or each.key != members[at - 1].key]
    keys = [members[at].key.encode("utf-8", "surrogateescape") for at in starts]
    suffixes = sorted({each.suffix for each in members})
    numbers = {suffix: number for number, suffix in enumerate(suffixes)}
    columns = [
        [*starts, len(members)],
        [numbers[each.suffix] for each in members],
        [each.offset for each in members],
        [each.size for each in members],
    ]
    ends = np.cumsum([len(each) for each in keys], dtype=np.int64)
    text = np.frombuffer(b"".join(keys), dtype=np.uint8)
    return suffixes, [text, ends, *(np.asarray(each, dtype=np.int64) for each in columns)]


def store_index(tar: Path, members: Sequence[Member]) -> TarIndex:
    """Write the index beside the tar; where nobody may write there, it is only returned."""
    suffixes, arrays = build_index(members)
    stamp = tar.stat()
    target = index_path(tar)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        write_arrays(draft, {"tar_bytes": stamp.st_size, "suffixes": suffixes}, arrays)
        os.utime(draft, ns=(stamp.st_mtime_ns, stamp.st_mtime_ns))
        draft.replace(target)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return TarIndex(suffixes, arrays)


def load_index(tar: Path) -> TarIndex:
    """The stored index where it is of this very tar, else a new one."""
    stored, is_current = _stored_index(tar)
    if stored and is_current:
        return stored
    try:
        return store_index(tar, scan(tar))
    except SampleError:
        if stored:
            return stored  # a damaged head hides the files after it, but not from who knows where they are
        raise


def _stored_index(tar: Path) -> tuple[TarIndex | None, bool]:
    """The index beside a tar of this size, and whether the tar has not been touched since."""
    path, stamp = index_path(tar), tar.stat()
    try:
        is_current = path.stat().st_mtime_ns == stamp.st_mtime_ns
        head, arrays = read_arrays(path)
    except (OSError, SampleError):
        return None, False
    return (
        (TarIndex(head["suffixes"], arrays), is_current)
        if head["tar_bytes"] == stamp.st_size
        else (None, False)
    )


def scan(tar: Path) -> list[Member]:
    """All files of a tar, from its headers."""
    members = []
    try:
        with tarfile.open(tar, "r:") as file:
            for info in file:
                named = _NAME.match(info.name)
                if info.isreg() and named:
                    members.append(Member(named[1], named[2], info.offset_data, info.size))
    except tarfile.TarError as error:
        raise SampleError(
            f"{tar} cannot be read as a tar: {error}.", "pack it again; hotlap reads plain tars"
        ) from None
    if members and members[-1].offset + members[-1].size > tar.stat().st_size:
        raise SampleError(f"{tar} is cut off in '{members[-1].key}'.", "copy or pack it again")
    return members


class MappedTar:
    """A tar in memory: any file of any sample, without a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index = load_index(path)
        with path.open("rb") as file:
            self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def files(self, position: int) -> dict[str, memoryview]:
        return {suffix: self._view[at : at + size] for suffix, at, size in self.index.files(position)}


class Keys(Sequence[str]):
    """The keys of an index, made into text when they are asked for."""

    def __init__(self, index: TarIndex) -> None:
        self._index = index

    def __len__(self) -> int:
        return len(self._index)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._index.key(each) for each in range(*index.indices(len(self)))]
        return self._index.key(range(len(self))[index])


# NumPy's own file format in memory, with the head of equal arrays parsed once.


_PREFIX = 10
"""Magic, version and length of the head of a version 1 file, which all but exotic arrays are."""


def to_npy(array: np.ndarray[Any, Any]) -> bytes:
    """The bytes of a .npy file."""
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array, order="C"), allow_pickle=False)
    return buffer.getvalue()


def from_npy(content: memoryview) -> np.ndarray[Any, Any]:
    """The array, as a copy of its own."""
    if bytes(content[:8]) != b"\x93NUMPY\x01\x00":
        loaded: np.ndarray[Any, Any] = np.load(io.BytesIO(content), allow_pickle=False)
        return loaded
    start = _PREFIX + int.from_bytes(content[8:10], "little")
    shape, dtype, order = _head(bytes(content[:start]))
    array = np.frombuffer(content, dtype=dtype, offset=start, count=int(np.prod(shape)))
    return array.reshape(shape, order=order).copy(order="K")


@lru_cache(maxsize=4096)
def _head(prefix: bytes) -> tuple[tuple[int, ...], np.dtype[Any], Any]:
    file = io.BytesIO(prefix)
    np.lib.format.read_magic(file)
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject:
        raise ValueError("the array holds Python objects")
    return shape, dtype, "F" if fortran else "C"
