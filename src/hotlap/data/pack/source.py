"""What can be packed: samples by number, each with a key, from files or from a dataset of the user's."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hotlap.data.decode import plain_wav
from hotlap.data.samples import SampleError

Arguments = Mapping[str, Any]


class SampleSource(ABC):
    """Samples by number. Every worker opens its own; the same name and arguments give the same samples."""

    structured: ClassVar[bool] = False
    """Whether items are a program's own (tuples, tensors), to be given back as they were."""

    @classmethod
    @abstractmethod
    def recognises(cls, name: str) -> bool:
        """Whether what the user named is of this kind."""

    @abstractmethod
    def __init__(self, name: str, arguments: Arguments) -> None: ...

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """A name for each sample: without dots and slashes, and no two alike."""

    @abstractmethod
    def read(self, index: int) -> Any:
        """The fields of a sample, or the item where `structured`."""

    def where(self, index: int) -> str:
        """Where a sample comes from, for messages."""
        return f"sample {index}"

    def sizes(self) -> Sequence[int] | None:
        """Bytes of each sample, where that is known without reading it."""
        return None

    @abstractmethod
    def fingerprint(self) -> str:
        """Changes when the samples may have changed."""


class FileSource(SampleSource):
    """Samples that lie in files of their own."""

    @abstractmethod
    def paths(self, index: int) -> Sequence[Path]:
        """The files of a sample."""

    def where(self, index: int) -> str:
        return str(self.paths(index)[0])

    def sizes(self) -> Sequence[int]:
        return [sum(stat_of(path).st_size for path in self.paths(index)) for index in range(len(self.keys))]

    def fingerprint(self) -> str:
        return files_fingerprint(path for index in range(len(self.keys)) for path in self.paths(index))


def unique_keys(names: Iterable[str]) -> list[str]:
    """Names as flat, dot-free keys: readers of tars take what follows the first dot for the suffix."""
    seen: dict[str, int] = {}
    keys = []
    for name in names:
        key = name.replace("/", "_").replace(".", "_").strip("_") or "sample"
        count = seen[key] = seen.get(key, -1) + 1
        while count and f"{key}-{count}" in seen:
            count += 1
        keys.append(f"{key}-{count}" if count else key)
        seen.setdefault(keys[-1], 0)
    return keys


def files_fingerprint(paths: Iterable[Path]) -> str:
    """Of names, sizes and times of change."""
    digest = hashlib.sha256()
    for path in paths:
        stamp = stat_of(path)
        digest.update(f"{path}\0{stamp.st_size}\0{stamp.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def stat_of(path: Path) -> os.stat_result:
    """Size and time of change; a file that is named but not there is told."""
    try:
        return path.stat()
    except OSError as error:
        raise SampleError(
            f"{path} cannot be read: {error.strerror}.", "restore the file or leave it out"
        ) from None


def no_arguments(name: str, arguments: Arguments) -> None:
    if arguments:
        given = ", ".join(arguments)
        raise SampleError(f"{name} is no dataset class, so it takes no --arg ({given}).", "leave --arg away")


def read_intact(path: Path) -> bytes:
    """The content of a file that is there and whole, by what its suffix says that it is."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise SampleError(
            f"{path} cannot be read: {error.strerror}.", "restore the file or leave it out"
        ) from None
    check_intact(path.suffix[1:].lower(), content)
    return content


# Looks whether a file is whole, as far as its head and its end tell: no decoding, so that packing stays a copy.


_WAV_HEAD = 44
_TAIL = 2**16
"""Cameras append notes of their own after the end of a JPEG, but no long ones."""


def check_intact(suffix: str, content: bytes) -> None:
    """Refuse an empty, cut off or wrongly named file."""
    fault = "it is empty" if not content else _FAULTS.get(suffix, _none)(content)
    if fault:
        raise SampleError(f"the file is damaged: {fault}.", "restore the file or leave it out")


def _none(_: bytes) -> str:
    return ""


def _wav(content: bytes) -> str:
    if len(content) < _WAV_HEAD:
        return "it is cut off"
    try:
        plain_wav(memoryview(content))
    except SampleError as error:
        return error.what.rstrip(".")
    return "" if content[:4] in (b"RIFF", b"RF64", b"RIFX") else "it is no WAV file"


def _flac(content: bytes) -> str:
    return "" if content[:4] == b"fLaC" or content[:3] == b"ID3" else "it is no FLAC file"


def _jpeg(content: bytes) -> str:
    if content[:2] != b"\xff\xd8":
        return "it is no JPEG file"
    return "" if b"\xff\xd9" in content[-_TAIL:][2:] else "it is cut off"


def _png(content: bytes) -> str:
    if content[:8] != b"\x89PNG\r\n\x1a\n":
        return "it is no PNG file"
    return "" if b"IEND" in content[-_TAIL:] else "it is cut off"


_FAULTS: dict[str, Callable[[bytes], str]] = {
    "wav": _wav, "flac": _flac, "jpg": _jpeg, "jpeg": _jpeg, "png": _png,
}  # fmt: skip
