"""What can be packed: samples by number, each with a key, from files or from a dataset of the user's."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from hotlap.data.samples import SampleError

Arguments = Mapping[str, Any]


class Source(ABC):
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


def read_file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SampleError(
            f"{path} cannot be read: {error.strerror}.", "restore the file or leave it out"
        ) from None
