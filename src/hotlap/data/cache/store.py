"""The kept items of a dataset: one by one, many at once, or as whole batches."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from hotlap.data.cache.columns import StoredColumn, TensorColumn, column
from hotlap.data.cache.shape import Shape, leaves_of, put_all_together, put_together, shape_of
from hotlap.facts import private

PARTS = {"none": (), "fixed": ("data",), "window": ("data", "starts"), "ragged": ("data", "sizes")}

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Layout:
    """What is needed to read the parts of a drawer."""

    shape: Shape
    modes: tuple[str, ...]
    count: int
    live: bool = False

    def parts(self) -> list[tuple[int, str, str]]:
        """Column, part, and the part's name in the drawer."""
        return [
            (number, part, f"{number}.{part}")
            for number, mode in enumerate(self.modes)
            for part in PARTS[mode]
        ]


@dataclass(frozen=True)
class Store:
    """Items by row. It pickles as the place where it lies, so that workers of a loader share the memory."""

    layout: Layout
    drawer: Drawer

    @cached_property
    def columns(self) -> list[StoredColumn]:
        parts: dict[int, dict[str, Any]] = {number: {} for number in range(len(self.layout.modes))}
        for number, part, name in self.layout.parts():
            parts[number][part] = self.drawer.read(name)
        leaves = zip(leaves_of(self.layout.shape), self.layout.modes, strict=True)
        return [
            column(leaf, mode, self.layout.count, parts[number]) for number, (leaf, mode) in enumerate(leaves)
        ]

    def item(self, row: int) -> Any:
        """A fresh item: who changes it changes nothing here."""
        return put_together(self.layout.shape, iter([each.value(row) for each in self.columns]))

    def items(self, rows: Rows) -> list[Any]:
        columns = (each.values(rows) for each in self.columns)
        return put_all_together(self.layout.shape, columns, len(rows))

    def nbytes(self) -> int:
        return sum(self.drawer.path(name).stat().st_size for _, _, name in self.layout.parts())

    def __getstate__(self) -> dict[str, Any]:
        return {"layout": self.layout, "drawer": self.drawer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)


@dataclass(frozen=True)
class TensorStore(Store):
    """Items of a TensorDataset: its tensors are the columns, and nothing is copied."""

    tensors: tuple[torch.Tensor, ...] = ()

    @cached_property
    def columns(self) -> list[StoredColumn]:
        leaves = zip(leaves_of(self.layout.shape), self.tensors, strict=True)
        return [TensorColumn(leaf, tensor) for leaf, tensor in leaves]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "tensors": self.tensors}


def store_of_tensors(tensors: tuple[torch.Tensor, ...]) -> TensorStore:
    shape = shape_of(tuple(tensor[0] for tensor in tensors))
    layout = Layout(shape, ("fixed",) * len(tensors), len(tensors[0]))
    return TensorStore(layout, Drawer(), tensors)


# Where the parts of a cache lie: files of a folder, or memory that other processes can open too.


class Drawer:
    """Named parts. They are written once, from start to end, and then only mapped."""

    def create(self, name: str) -> BinaryIO:
        return open(self.path(name), "wb", opener=private.opener)

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
