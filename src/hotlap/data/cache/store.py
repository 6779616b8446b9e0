"""The kept items of a dataset: one by one, many at once, or as whole batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hotlap.data.cache.columns import Column, Whole, column
from hotlap.data.cache.drawer import Drawer
from hotlap.data.cache.shape import Shape, leaves_of, put_all_together, put_together, shape_of

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
    def columns(self) -> list[Column]:
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
    def columns(self) -> list[Column]:
        leaves = zip(leaves_of(self.layout.shape), self.tensors, strict=True)
        return [Whole(leaf, tensor) for leaf, tensor in leaves]

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "tensors": self.tensors}


def store_of_tensors(tensors: tuple[torch.Tensor, ...]) -> TensorStore:
    shape = shape_of(tuple(tensor[0] for tensor in tensors))
    layout = Layout(shape, ("fixed",) * len(tensors), len(tensors[0]))
    return TensorStore(layout, Drawer(), tensors)
