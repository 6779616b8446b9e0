"""Pictures in folders, a folder for each class; or a folder of pictures without classes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from hotlap.data.decode import PICTURES
from hotlap.data.pack.source import Arguments, FileSource, no_arguments, read_intact, unique_keys
from hotlap.data.samples import Fields


class Pictures(FileSource):
    """In an order that mixes the classes: tools that read shards one after the other shuffle only within a buffer."""

    @classmethod
    def recognises(cls, name: str) -> bool:
        return Path(name).is_dir() and next(_pictures(name), None) is not None

    def __init__(self, name: str, arguments: Arguments) -> None:
        no_arguments(name, arguments)
        self._root = Path(name)
        self._names = sorted(_pictures(name), key=_mixed)
        folders = {Path(each).parts[0] for each in self._names if "/" in each}
        self._classes = {label: number for number, label in enumerate(sorted(folders))}

    @cached_property
    def keys(self) -> Sequence[str]:
        return unique_keys(str(Path(each).with_suffix("")) for each in self._names)

    def read(self, index: int) -> Fields:
        name = self._names[index]
        content, suffix = read_intact(self._root / name), Path(name).suffix[1:].lower()
        fields: Fields = {"jpg" if suffix == "jpeg" else suffix: content, "path": name}
        if self._classes:
            label = Path(name).parts[0]
            fields |= {"label": self._classes.get(label, -1), "class": label if "/" in name else ""}
        return fields

    def paths(self, index: int) -> Sequence[Path]:
        return [self._root / self._names[index]]


def _pictures(root: str) -> Iterator[str]:
    for folder, _, names in os.walk(root):
        for name in names:
            if name.rpartition(".")[2].lower() in PICTURES and not name.startswith("."):
                yield os.path.relpath(f"{folder}/{name}", root)


def _mixed(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
