"""Where the parts of a cache lie: files of a folder, or memory that other processes can open too."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray


class Drawer:
    """Named parts. They are written once, from start to end, and then only mapped."""

    def create(self, name: str) -> BinaryIO:
        return self.path(name).open("wb")

    def path(self, name: str) -> Path:
        raise NotImplementedError

    def read(self, name: str) -> NDArray[np.uint8]:
        """The part, mapped and not copied; nobody may write to it."""
        with self.path(name).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return np.empty(0, np.uint8)
            return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)

    def remove(self) -> None:
        """Give up what was written."""


class FolderDrawer(Drawer):
    """Files that later runs and all ranks share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class MemoryDrawer(Drawer):
    """Memory that goes when the last process that uses it goes.

    It has a descriptor and no name, so that nothing is left behind by a kill, and other processes of the same
    user reach it through /proc. Where the system has no such thing, it is a folder of temporary files.
    """

    def __init__(self) -> None:
        self._descriptors: dict[str, int] = {}
        self._folder = None if hasattr(os, "memfd_create") else Path(tempfile.mkdtemp(prefix="hotlap-"))
        self._owner = os.getpid()
        self._closed = weakref.finalize(self, _close, self._descriptors, self._folder, self._owner)

    def create(self, name: str) -> BinaryIO:
        if self._folder is None and name not in self._descriptors:
            self._descriptors[name] = os.memfd_create(f"hotlap-{name}")
        return super().create(name)

    def path(self, name: str) -> Path:
        if self._folder is not None:
            return self._folder / name
        return Path(f"/proc/{self._owner}/fd/{self._descriptors[name]}")

    def remove(self) -> None:
        self._closed()

    def __reduce__(self) -> tuple[type[PathDrawer], tuple[dict[str, Path]]]:
        names = self._descriptors if self._folder is None else [each.name for each in self._folder.iterdir()]
        return PathDrawer, ({name: self.path(name) for name in names},)


class PathDrawer(Drawer):
    """Memory of another process, while that lives."""

    def __init__(self, paths: dict[str, Path]) -> None:
        self._paths = paths

    def path(self, name: str) -> Path:
        return self._paths[name]


def _close(descriptors: dict[str, int], folder: Path | None, owner: int) -> None:
    if os.getpid() != owner:  # a forked process ends: the memory is its parent's
        return
    for descriptor in descriptors.values():
        os.close(descriptor)
    descriptors.clear()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
