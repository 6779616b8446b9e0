"""Fetches every item once, in several processes, and writes the columns in order."""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hotlap.data.cache import rng, witnesses
from hotlap.data.cache.budget import chunk_items
from hotlap.data.cache.child import Child
from hotlap.data.cache.drawer import Drawer
from hotlap.data.cache.encode import Block, encode, mode_of, rows_of
from hotlap.data.cache.progress import Advance
from hotlap.data.cache.proof import PATIENCE_S, Proof, digest, fetcher
from hotlap.data.cache.refusal import CannotCacheError
from hotlap.data.cache.shape import Leaf, Mismatch, Shape, leaves_of, shape_of, values_of, widened
from hotlap.data.cache.source import Source
from hotlap.data.cache.store import Layout
from hotlap.units import size

AHEAD = 4  # chunks for each process that may wait for an earlier one
WORTH_S = 0.5  # of fetching in all: less is done by one process
LOOKS_AGAIN = 8  # items of a chunk whose first item is fetched again at its end
WIDENINGS = 3  # times that a build begins again because an item has a size that no sample had


@dataclass(frozen=True)
class Built:
    """A written drawer: how to read it, checksums of its parts, and the files that the items were made from."""

    layout: Layout
    checksums: dict[str, int]
    files: list[witnesses.Witness]


@dataclass(frozen=True)
class Chunk:
    """Some items in a row; `wider` and no blocks where the structure does not hold them."""

    blocks: list[Block]
    files: list[witnesses.Witness]
    wider: Shape | None = None


@dataclass
class Column:
    """A column that is being written."""

    leaf: Leaf
    mode: str
    files: dict[str, BinaryIO] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    rows: int = 0

    def append(self, block: Block) -> int:
        starts = None if block.starts is None else block.starts + self.rows
        if starts is not None:
            self.rows += len(block.data) // _row_bytes(self.leaf, block)
        parts = {"data": block.data, "starts": starts, "sizes": block.sizes}
        return sum(self._write(part, parts[part]) for part in self.files)

    def _write(self, part: str, values: NDArray[Any] | None) -> int:
        assert values is not None
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self.files[part].write(content)
        self.sums[part] = zlib.crc32(content, self.sums.get(part, 0))
        return len(content)


def build(source: Source, proof: Proof, drawer: Drawer, most_bytes: int, advance: Advance) -> Built:
    """Raises CannotCacheError where an item cannot be kept, and OSError where it cannot be written."""
    shape = proof.shape
    for _ in range(WIDENINGS):
        leaves = leaves_of(shape)
        sliding = proof.sliding if len(proof.sliding) == len(leaves) else (None,) * len(leaves)
        modes = tuple(mode_of(leaf, new is not None) for leaf, new in zip(leaves, sliding, strict=True))
        found = _build(
            source, proof, Layout(shape, modes, source.count, proof.live), drawer, most_bytes, advance
        )
        if isinstance(found, Built):
            return found
        shape = found
    raise CannotCacheError(f"items differ in structure in more than {WIDENINGS} ways")


def make_chunk(source: Source, first: int, last: int, layout: Layout) -> Chunk:
    """In a child: fetch and encode the rows from `first` to before `last`."""
    witnesses.listen()
    fetch, before = fetcher(source, layout.live), rng.states()
    values: list[list[Any]] = []
    earliest = b""
    for row in range(first, last):
        item = fetch(row)
        wider = _wider(layout.shape, item, row)
        if wider != layout.shape:
            return Chunk([], [], wider)
        values.append(list(values_of(item, layout.shape)))
        earliest = earliest or digest(item)[0]
    if last - first >= LOOKS_AGAIN and digest(fetch(first))[0] != earliest:
        raise CannotCacheError(f"item {first} is another one when it is fetched again")
    if whose := rng.moved(before):
        raise CannotCacheError(f"fetching items {first} to {last - 1} draws random numbers of {whose}")
    columns = zip(leaves_of(layout.shape), layout.modes, zip(*values, strict=True), strict=True)
    return Chunk([encode(leaf, mode, column) for leaf, mode, column in columns], witnesses.heard())


def _wider(shape: Shape, item: Any, row: int) -> Shape:
    try:
        return widened(shape, shape_of(item))
    except Mismatch as difference:
        raise CannotCacheError(f"item {row} differs in structure from others: {difference}") from difference


def _build(
    source: Source, proof: Proof, layout: Layout, drawer: Drawer, most_bytes: int, advance: Advance
) -> Built | Shape:
    chunks = _chunks(source.count, chunk_items(proof))
    columns = [Column(leaf, mode) for leaf, mode in zip(leaves_of(layout.shape), layout.modes, strict=True)]
    files: dict[str, witnesses.Witness] = {}
    with ExitStack() as stack:
        for number, part, name in layout.parts():
            columns[number].files[part] = stack.enter_context(drawer.create(name))
        written = 0
        made = stack.enter_context(closing(_fetched(source, proof, layout, chunks)))
        for chunk, (first, last) in zip(made, chunks, strict=True):
            if chunk.wider is not None:
                return chunk.wider
            written += sum(column.append(block) for column, block in zip(columns, chunk.blocks, strict=True))
            if written > most_bytes:
                raise CannotCacheError(f"items {first} and before take more than {size(most_bytes)}")
            files = {each[0]: each for each in chunk.files} | files  # the first look at a file counts
            advance(last - first)
    sums = {name: columns[number].sums.get(part, 0) for number, part, name in layout.parts()}
    return Built(layout, sums, list(files.values()))


def _fetched(
    source: Source, proof: Proof, layout: Layout, chunks: list[tuple[int, int]]
) -> Generator[Chunk, None, None]:
    """The chunks in order, made by several processes; none gets far ahead of the one that is waited for."""
    positions = witnesses.positions()
    children = [Child(source, 41 + number) for number in range(_processes(source, proof, len(chunks)))]
    try:
        idle, busy = list(children), dict[Any, tuple[Child, int]]()
        made: dict[int, Chunk] = {}
        asked = given = 0
        while given < len(chunks):
            while idle and asked < min(len(chunks), given + AHEAD * len(children)):
                child = idle.pop()
                child.ask(make_chunk, *chunks[asked], layout)
                busy[child.connection] = (child, asked)
                asked += 1
            for connection in wait(list(busy), PATIENCE_S) or list(busy)[:1]:
                child, number = busy.pop(connection)
                made[number] = child.answer(within_s=1.0)
                idle.append(child)
            while given in made:
                yield made.pop(given)
                given += 1
    finally:
        for child in children:
            child.end()
        witnesses.put_back(positions)


def _processes(source: Source, proof: Proof, chunks: int) -> int:
    if proof.alone or source.count * proof.item_s < WORTH_S:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, chunks))


def _chunks(count: int, items: int) -> list[tuple[int, int]]:
    return [(first, min(count, first + items)) for first in range(0, count, items)]


def _row_bytes(leaf: Leaf, block: Block) -> int:
    assert block.starts is not None
    rows = rows_of(leaf)
    return len(block.data) // (int(block.starts[-1]) + rows)
