"""A shard format stores samples in files and reads any of them back, in any order.

A sample is a key and named fields. A field is bytes (an encoded sound or picture), a NumPy array, or a value that JSON
knows. What comes back is equal to what was stored: type, dtype, shape and every bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

Fields = dict[str, Any]


class ShardWriter(ABC):
    """Writes one shard. The same samples give the same bytes, so that work that was cut off can be repeated.

    Used in a `with` block: its end completes the shard, an error inside discards it.
    """

    @abstractmethod
    def add(self, key: str, fields: Mapping[str, Any]) -> None:
        """Append a sample; one that the format cannot store is refused with the reason (HotlapError)."""

    @abstractmethod
    def close(self) -> None:
        """Complete the file. Before this it is no shard, and nobody but the writer looks at it."""

    @abstractmethod
    def discard(self) -> None:
        """Let go of an unfinished file; whoever began the shard deletes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()


class ShardReader(ABC):
    """Reads one shard, from any thread. What it returns is the caller's own: changing it changes no shard."""

    @property
    @abstractmethod
    def keys(self) -> Sequence[str]:
        """The keys, in the order of writing."""

    @abstractmethod
    def read(self, position: int) -> Fields:
        """One sample; bytes fields may be views (memoryview) of the file."""

    def view(self, position: int) -> Fields:
        """One sample whose arrays may lie in the file itself, read-only: for who copies them elsewhere at once."""
        return self.read(position)

    def gather(self, positions: Sequence[int]) -> Fields | None:
        """The samples stacked, one array for each field, where the format can do that without a loop; else None."""
        return None

    def spans(self, positions: Sequence[int]) -> dict[str, Any] | None:
        """Where sequences lie (`hotlap.data.spans.Spans` by field), where all fields are plain values; else None."""
        return None


class ShardFormat(ABC):
    """One format. The module's docstring is its card."""

    id: ClassVar[str]
    suffix: ClassVar[str]
    stem: ClassVar[str] = "shard_"

    def name(self, number: int) -> str:
        """The file name of a shard, as the tools that read this format expect it."""
        return f"{self.stem}{number}{self.suffix}"

    @abstractmethod
    def write(self, path: Path) -> ShardWriter:
        """Begin a shard. Files beside it that belong to it are written there too."""

    @abstractmethod
    def open(self, path: Path) -> ShardReader:
        """Open a finished shard."""

    def recognises(self, path: Path) -> bool:
        """Whether a shard that nobody described is of this format."""
        return path.suffix == self.suffix

    def together(self, folder: Path, shards: Sequence[str]) -> dict[str, str]:
        """Text files that belong to all shards together, by name."""
        return {}

    def hints(self, folder: Path, shards: Sequence[str]) -> dict[str, str]:
        """How other tools name these shards, for the user to copy."""
        return {}
