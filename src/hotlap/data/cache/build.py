"""Fetches every item once, in several processes, and writes the columns in order."""

from __future__ import annotations

import os
import zlib
from collections import defaultdict
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hotlap.data.budget import usable_cores
from hotlap.data.cache import source as live
from hotlap.data.cache import watch
from hotlap.data.cache.child import HelperProcess
from hotlap.data.cache.columns import ColumnBlock, encode, mode_of, rows_of
from hotlap.data.cache.messages import Advance, CannotCacheError
from hotlap.data.cache.proof import PATIENCE_S, SampleSurvey, chunk_items, digest, fetcher
from hotlap.data.cache.shape import Leaf, Mismatch, Shape, leaves_of, shape_of, values_of, widened
from hotlap.data.cache.source import CacheSource
from hotlap.data.cache.store import Drawer, Layout
from hotlap.sameness import random_states
from hotlap.sameness.dependencies import Dependencies
from hotlap.units import size

AHEAD = 4  # chunks for each process that may wait for an earlier one
WORTH_S = 0.5  # of fetching in all: less is done by one process
LOOKS_AGAIN = 8  # items of a chunk whose first item is fetched again at its end
_OF_THIS_CHILD: list[Dependencies] = []
WIDENINGS = 3  # times that a build begins again because an item has a size that no sample had


@dataclass(frozen=True)
class CacheManifest:
    """A written drawer: how to read it, checksums of its parts, and the files that the items were made from."""

    layout: Layout
    checksums: dict[str, list[int]]  # size and sum
    files: list[watch.Witness]
    volatile: frozenset[str] = frozenset()  # what fetching items changed of the dataset


@dataclass(frozen=True)
class Chunk:
    """Some items in a row; `wider` and no blocks where the structure does not hold them."""

    blocks: list[ColumnBlock]
    files: list[watch.Witness]
    wider: Shape | None = None


@dataclass
class ColumnWriter:
    """A column that is being written."""

    leaf: Leaf
    mode: str
    files: dict[str, BinaryIO] = field(default_factory=dict)
    sums: defaultdict[str, Checksum] = field(default_factory=lambda: defaultdict(Checksum))
    rows: int = 0

    def append(self, block: ColumnBlock) -> int:
        starts = None if block.starts is None else block.starts + self.rows
        if starts is not None:
            self.rows += len(block.data) // _row_bytes(self.leaf, block)
        parts = {"data": block.data, "starts": starts, "sizes": block.sizes}
        return sum(self._write(part, parts[part]) for part in self.files)

    def _write(self, part: str, values: NDArray[Any] | None) -> int:
        assert values is not None
        content = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        self.files[part].write(content)
        self.sums[part].add(content)
        return len(content)


def build(
    source: CacheSource, proof: SampleSurvey, drawer: Drawer, most_bytes: int, advance: Advance
) -> CacheManifest:
    """Raises CannotCacheError where an item cannot be kept, and OSError where it cannot be written."""
    shape = proof.shape
    for _ in range(WIDENINGS):
        leaves = leaves_of(shape)
        sliding = proof.sliding if len(proof.sliding) == len(leaves) else (None,) * len(leaves)
        modes = tuple(mode_of(leaf, new is not None) for leaf, new in zip(leaves, sliding, strict=True))
        found = _build(
            source, proof, Layout(shape, modes, source.count, proof.live), drawer, most_bytes, advance
        )
        if isinstance(found, CacheManifest):
            return found
        shape = found
    raise CannotCacheError(f"items differ in structure in more than {WIDENINGS} ways")


def make_chunk(source: CacheSource, first: int, last: int, layout: Layout) -> Chunk:
    """In a child: fetch and encode the rows from `first` to before `last`."""
    watch.listen()
    _watched(source, layout.live)
    fetch, before = fetcher(source, layout.live), random_states.states()
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
    if whose := random_states.moved(before):
        raise CannotCacheError(f"fetching items {first} to {last - 1} draws random numbers of {whose}")
    columns = zip(leaves_of(layout.shape), layout.modes, zip(*values, strict=True), strict=True)
    blocks = [encode(leaf, mode, column) for leaf, mode, column in columns]
    return Chunk(blocks, watch.heard())


def changed_by_fetching(source: CacheSource, lives: bool) -> tuple[str, ...]:
    """In a child, after all of its chunks: what they changed of the dataset. One item in a thousand may draw."""
    return _watched(source, lives).all_changed()


def _watched(source: CacheSource, lives: bool) -> Dependencies:
    """Of this child, made once: its dataset was forked as it is in the training process."""
    if not _OF_THIS_CHILD:
        leave = live.holders_of(source.dataset) if lives else ()
        _OF_THIS_CHILD.append(Dependencies(source.dataset, leave=leave))
    return _OF_THIS_CHILD[0]


def _wider(shape: Shape, item: Any, row: int) -> Shape:
    try:
        return widened(shape, shape_of(item))
    except Mismatch as difference:
        raise CannotCacheError(f"item {row} differs in structure from others: {difference}") from difference


def _build(
    source: CacheSource,
    proof: SampleSurvey,
    layout: Layout,
    drawer: Drawer,
    most_bytes: int,
    advance: Advance,
) -> CacheManifest | Shape:
    chunks = _chunks(source.count, chunk_items(proof))
    columns = [
        ColumnWriter(leaf, mode) for leaf, mode in zip(leaves_of(layout.shape), layout.modes, strict=True)
    ]
    files: dict[str, watch.Witness] = {}
    volatile = set(proof.volatile)
    with ExitStack() as stack:
        for number, part, name in layout.parts():
            columns[number].files[part] = stack.enter_context(drawer.create(name))
        written = 0
        made = stack.enter_context(closing(_fetched(source, proof, layout, chunks, volatile)))
        for chunk, (first, last) in zip(made, chunks, strict=True):
            if chunk.wider is not None:
                return chunk.wider
            written += sum(column.append(block) for column, block in zip(columns, chunk.blocks, strict=True))
            if written > most_bytes:
                raise CannotCacheError(f"items {first} and before take more than {size(most_bytes)}")
            files = {each[0]: each for each in chunk.files} | files  # the first look at a file counts
            advance(last - first)
    sums = {name: columns[number].sums[part].told() for number, part, name in layout.parts()}
    return CacheManifest(layout, sums, list(files.values()), frozenset(volatile))


def _fetched(
    source: CacheSource,
    proof: SampleSurvey,
    layout: Layout,
    chunks: list[tuple[int, int]],
    volatile: set[str],
) -> Generator[Chunk, None, None]:
    """The chunks in order, made by several processes; none gets far ahead of the one that is waited for.

    After the last one `volatile` holds what fetching has changed.
    """
    positions = watch.positions()
    children = [
        HelperProcess(source, 41 + number) for number in range(_processes(source, proof, len(chunks)))
    ]
    try:
        idle, busy = list(children), dict[Any, tuple[HelperProcess, int]]()
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
        for child in children:
            child.ask(changed_by_fetching, layout.live)
        for child in children:
            volatile.update(child.answer(PATIENCE_S))
    finally:
        for child in children:
            child.end()
        watch.put_back(positions)


def _processes(source: CacheSource, proof: SampleSurvey, chunks: int) -> int:
    if proof.alone or source.count * proof.item_s < WORTH_S:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, chunks))


def _chunks(count: int, items: int) -> list[tuple[int, int]]:
    return [(first, min(count, first + items)) for first in range(0, count, items)]


def _row_bytes(leaf: Leaf, block: ColumnBlock) -> int:
    assert block.starts is not None
    rows = rows_of(leaf)
    return len(block.data) // (int(block.starts[-1]) + rows)


# A checksum that costs little more than reading: caches of gigabytes are compared whole each time they are opened.
#
# Pages of 4 KiB are summed by the halves of their 64-bit words, exactly, and the sums go into a CRC-32. So a
# flipped byte is always found, and so is all else that changes what a page adds up to, such as lost pages
# that read as zeros; of what does, the CRC misses one in 2**32. Words that only changed places within a page
# are not found. CRC-32 of the bytes themselves takes about three times as long.


PAGE = 4096
AT_ONCE = 1 << 20  # bytes: they and their halves stay in the processor's cache
SPAN = 1 << 25  # bytes of a file that one thread reads in a go
_HALF = np.uint64(32)


class Checksum:
    """Of a part, however it is cut while it is written."""

    def __init__(self) -> None:
        self._sums = self._size = 0
        self._rest = b""
        self._highs = np.empty(AT_ONCE // 8, np.uint64)

    def add(self, content: Any) -> None:
        """What comes next: anything that gives its bytes."""
        view = memoryview(content).cast("B")
        self._size += len(view)
        if self._rest:
            missing = PAGE - len(self._rest)
            self._rest, view = self._rest + bytes(view[:missing]), view[missing:]
            if len(self._rest) < PAGE:
                return
            self._add_pages(np.frombuffer(self._rest, np.uint64))
        whole = len(view) // PAGE * PAGE
        for first in range(0, whole, AT_ONCE):
            self._add_pages(np.frombuffer(view[first : min(whole, first + AT_ONCE)], np.uint64))
        self._rest = bytes(view[whole:])

    def told(self) -> list[int]:
        """Size and sum of all that was added."""
        return [self._size, zlib.crc32(self._rest, self._sums)]

    def _add_pages(self, words: NDArray[np.uint64]) -> None:
        sums = np.empty((len(words) * 8 // PAGE, 2), np.uint64)
        _sum_up(words, self._highs[: len(words)], sums)
        self._sums = zlib.crc32(sums.data, self._sums)  # page by page, wherever it was cut


def checksum_of(path: Path) -> list[int]:
    """Of a whole file, read and not mapped: a sector that cannot be read is an error then, and no signal.

    Each core has spans of it: neither reading nor adding holds Python's lock.
    """
    with path.open("rb", buffering=0) as file:
        firsts = range(0, max(1, os.fstat(file.fileno()).st_size), SPAN)
        size = total = 0
        rest = b""
        with ThreadPoolExecutor(min(usable_cores(), len(firsts))) as pool:
            for count, sums, left_over in pool.map(partial(_sums_of, file.fileno()), firsts):
                size, total, rest = size + count, zlib.crc32(sums.data, total), left_over
    return [size, zlib.crc32(rest, total)]


def _sums_of(file: int, first: int) -> tuple[int, NDArray[np.uint64], bytes]:
    """Bytes of a span, the sums of its pages, and what is left over at the end of the file."""
    buffer, highs = bytearray(AT_ONCE), np.empty(AT_ONCE // 8, np.uint64)
    words, sums = np.frombuffer(buffer, np.uint64), np.empty((SPAN // PAGE, 2), np.uint64)
    done = 0
    while done < SPAN and (count := _read(file, buffer, first + done)):
        pages = count // PAGE
        _sum_up(words[: pages * PAGE // 8], highs[: pages * PAGE // 8], sums[done // PAGE :][:pages])
        done += count
        if count < AT_ONCE:
            return done, sums[: done // PAGE], bytes(buffer[pages * PAGE : count])
    return done, sums[: done // PAGE], b""


def _read(file: int, buffer: bytearray, first: int) -> int:
    """All of the buffer, but for the end of the file: one call may read less."""
    view, done = memoryview(buffer), 0
    while done < len(view) and (count := os.preadv(file, [view[done:]], first + done)):
        done += count
    return done


def _sum_up(words: NDArray[np.uint64], highs: NDArray[np.uint64], sums: NDArray[np.uint64]) -> None:
    """The sum of whole words wraps round; beside that of the upper halves it says what the lower ones add up to."""
    np.right_shift(words, _HALF, out=highs)
    for number, each in enumerate((words, highs)):
        np.add.reduce(each.reshape(-1, PAGE // 8), axis=1, out=sums[:, number])
