"""Proof that items are deterministic: sampled ones are fetched again and again, and must be bit-equal.

Twice in one process, in another order and under other random states; once more in another process; and, where the
dataset knows of epochs, from a copy that was told of another one, since what is kept serves all of them. Nobody may
draw from the random numbers that all share either: an item that draws and drops the number is equal each time, yet the
script's random numbers would go on differently without it.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hotlap.cost.reading import Fit
from hotlap.data.cache import child, watch
from hotlap.data.cache import source as live
from hotlap.data.cache.columns import itemsize, raw, slide_share
from hotlap.data.cache.messages import CannotCacheError, NoFileError
from hotlap.data.cache.shape import Leaf, Mismatch, Shape, leaves_of, shape_of, take_apart, widened
from hotlap.data.cache.source import CacheSource
from hotlap.sameness import random_states
from hotlap.sameness.dependencies import Dependencies
from hotlap.sameness.epochs import NoOtherEpochError, in_other_epochs
from hotlap.sameness.parts import PLAIN
from hotlap.units import size

SPREAD = 12  # samples over the whole dataset
PAIRS = 4  # places at which two items in a row are looked at
ENOUGH_S = 2.0  # of fetching in one pass: slow items are not all waited for
LEAST = 4  # samples, however slow
PATIENCE_S = 120.0
THREADS_PATIENCE_S = 10.0

Fetch = Callable[[int], Any]
Collate = Callable[[list[Any]], Any]


@dataclass(frozen=True)
class SampleSurvey:
    """What was seen of the samples. `live`: transforms stay live. `sliding`: of each window, what is new.

    `alone`: items are read through a file position that forked processes share, so only one may fetch at a time.
    `volatile`: what fetching an item changes of the dataset.
    """

    shape: Shape
    sliding: tuple[float | None, ...]
    digests: dict[int, bytes]
    item_bytes: float
    item_s: float
    live: bool = False
    alone: bool = False
    volatile: tuple[str, ...] = ()


@dataclass
class SamplePass:
    """One pass over samples."""

    digests: dict[int, bytes] = field(default_factory=dict)
    shape: Shape | None = None
    sizes: list[int] = field(default_factory=list)
    sliding: tuple[float | None, ...] = ()
    seconds: float = 0.0
    volatile: tuple[str, ...] = ()


def prove(source: CacheSource, collate: Collate | None = None) -> SampleSurvey:
    """Raises CannotCacheError with the reason where items are not deterministic, also without their transforms.

    `collate` makes batches of the items; without one the script gets the items themselves.
    """
    try:
        return _prove(source, False, collate)
    except CannotCacheError as refusal:
        if not live.transforms_of(source.dataset):
            raise
        try:
            return _prove(source, True, collate)
        except CannotCacheError as second:
            where = ", ".join(live.transforms_of(source.dataset))
            raise CannotCacheError(f"{refusal.what}, and without {where}: {second.what}") from second


def same_as(source: CacheSource, proof_of: dict[int, bytes], lives: bool) -> SamplePass | None:
    """A look at items, where they are still those that these digests were taken of."""
    rows = sorted(proof_of)
    before = watch.positions()
    try:
        seen: SamplePass = child.call(source, 29, PATIENCE_S, look_twice, rows, lives)
    finally:
        watch.put_back(before)
    return seen if all(proof_of[row] == digest for row, digest in seen.digests.items()) else None


def _prove(source: CacheSource, lives: bool, collate: Collate | None) -> SampleSurvey:
    rows = samples(source.count)
    before = watch.positions()
    try:
        first: SamplePass = child.call(source, 7, PATIENCE_S, look_twice, rows, lives)
        if not lives:
            child.call((source, collate), 37, PATIENCE_S, require_copies, list(first.digests)[:LEAST])
        other: SamplePass = child.call(source, 19, PATIENCE_S, look, sorted(first.digests), lives)
        _require_equal(first, other, "in another process")
        child.call(source, 31, PATIENCE_S, require_lasting, first, lives)
        _require_any_threads(source, first, lives)
    finally:
        alone = watch.put_back(before)
    assert first.shape is not None
    count = len(first.digests)
    return SampleSurvey(
        first.shape,
        first.sliding,
        first.digests,
        sum(first.sizes) / count,
        first.seconds / count,
        lives,
        alone,
        first.volatile,
    )


def _require_any_threads(source: CacheSource, seen: SamplePass, lives: bool) -> None:
    """Items are kept as one thread computes them; the script's own process may have more."""
    threads = torch.get_num_threads()
    if threads == 1:
        return
    rows = list(seen.digests)[:LEAST]
    try:
        many: SamplePass = child.call(
            source, 23, THREADS_PATIENCE_S + 4 * seen.seconds, look_with, rows, lives, threads
        )
    except child.LateError:  # threads and forks do not go together everywhere
        return
    _require_equal(seen, many, f"when torch computes it with {threads} threads")


def look_with(source: CacheSource, rows: Sequence[int], lives: bool, threads: int) -> SamplePass:
    """In a child: as a process with this many threads does it. The threads of the parent did not come over by the fork,
    but a new thread starts its own."""
    found: list[SamplePass | BaseException] = []

    def run() -> None:
        torch.set_num_threads(threads)
        try:
            found.append(look(source, rows, lives))
        except BaseException as fault:
            found.append(fault)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def require_lasting(source: CacheSource, seen: SamplePass, lives: bool) -> None:
    """In a child: items of other epochs are the same."""
    try:
        others = in_other_epochs(source.dataset)
    except NoOtherEpochError as fault:
        raise CannotCacheError(
            f"the dataset is told the epoch, and its items of another one could not be looked at ({fault})"
        ) from fault
    for other in others:
        later = look(replace(source, dataset=other), list(seen.digests), lives)
        _require_equal(seen, later, "in another epoch")


def samples(count: int) -> list[int]:
    """Rows to look at, the most telling first: the ends, then pairs, then some in between."""
    ends = [0, count - 1]
    starts = [count * (2 * place + 1) // (2 * PAIRS) for place in range(PAIRS)]
    pairs = [row for start in starts for row in (start, start + 1)]
    spread = [count * place // SPREAD for place in range(SPREAD)]
    return [row for row in dict.fromkeys([*ends, *pairs, *spread]) if 0 <= row < count]


def fetcher(source: CacheSource, lives: bool) -> Fetch:
    """Fetches what is kept of an item: the item, or what its transforms are given."""
    if not lives:
        return source.fetch
    recorder = live.Recorder(source.dataset)
    return lambda row: recorder.fetch(source.fetch, row)


def look_twice(source: CacheSource, rows: Sequence[int], lives: bool) -> SamplePass:
    """In a child: all samples, then again backwards under other random states."""
    watched = Dependencies(source.dataset, leave=live.holders_of(source.dataset) if lives else ())
    first = look(source, rows, lives)
    random_states.seed(11)
    again = look(source, list(first.digests)[::-1], lives)
    _require_equal(first, again, "when it is fetched again")
    if lives:
        _require_replay(source, list(first.digests)[:LEAST])
    elif callable(getattr(source.dataset, "__getitems__", None)):
        _require_same_at_once(source, first)
    first.volatile = watched.all_changed()
    return first


def look(source: CacheSource, rows: Sequence[int], lives: bool) -> SamplePass:
    """In a child: one pass."""
    fetch, seen, before = fetcher(source, lives), SamplePass(), random_states.states()
    values: dict[int, list[Any]] = {}
    items: list[Any] = []
    for row in rows:
        if seen.seconds > ENOUGH_S and len(seen.digests) >= LEAST:
            break
        began = time.perf_counter()
        item = fetch(row)
        seen.seconds += time.perf_counter() - began
        seen.digests[row], size, values[row] = digest(item)
        seen.sizes.append(size)
        seen.shape = _wider(seen.shape, shape_of(item))
        items.append(item)
    if whose := random_states.moved(before):
        raise CannotCacheError(f"fetching items draws random numbers of {whose}")
    for row, item in zip(seen.digests, items, strict=True):
        if digest(item)[0] != seen.digests[row]:
            raise CannotCacheError(f"item {row} changes when another one is fetched: they share memory")
    seen.sliding = _sliding(seen.shape, values)
    return seen


def require_copies(about: tuple[CacheSource, Collate | None], rows: Sequence[int]) -> None:
    """In a child: nothing that reaches the loop lies in the dataset's own memory, where the loop could write to it."""
    source, collate = about
    watched = Dependencies(source.dataset, collate)
    items = [source.fetch(row) for row in rows]
    volatile = watched.all_changed()
    batch = items if collate is None else _collated(collate, items)
    for each in _everything(batch):
        held = _addresses(each)
        if watched.shares_memory(*held) if held is not None else watched.holds(each):
            raise CannotCacheError(
                "its batches lie in the dataset's own memory: a loop that writes to one changes the dataset"
            )
    if by_collate := [each for each in watched.all_changed() if each not in volatile]:
        raise CannotCacheError(f"its collate changes {by_collate[0]}")


def _collated(collate: Collate, items: list[Any]) -> Any:
    try:
        return collate(items)
    except Exception:  # it may want other batches than these: then items count as what reaches the loop
        return items


def _everything(batch: Any) -> Iterator[Any]:
    """What a loop could write to: containers, objects, tensors and arrays."""
    todo, met = [batch], set[int]()
    while todo:
        value = todo.pop()
        if isinstance(value, PLAIN) or id(value) in met:
            continue
        met.add(id(value))
        if not isinstance(value, tuple):
            yield value
        if isinstance(value, Mapping):
            todo += value.values()
        elif isinstance(value, list | tuple | set):
            todo += value
        elif isinstance(value, np.ndarray):
            todo += value.ravel().tolist() if value.dtype.hasobject else ()
        elif not isinstance(value, torch.Tensor | type):
            todo += vars(value).values() if hasattr(value, "__dict__") else ()


def _addresses(leaf: Any) -> tuple[int, int] | None:
    if isinstance(leaf, torch.Tensor) and leaf.device.type == "cpu" and leaf.layout is torch.strided:
        storage = leaf.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
    if isinstance(leaf, np.ndarray) and leaf.size:
        return np.lib.array_utils.byte_bounds(leaf)
    return None


def _sliding(shape: Shape | None, values: dict[int, list[Any]]) -> tuple[float | None, ...]:
    columns = leaves_of(shape) if shape is not None else []
    pairs = [(values[row - 1], values[row]) for row in values if row - 1 in values]
    if any(len(each) != len(columns) for pair in pairs for each in pair):  # lists of varying lengths
        return (None,) * len(columns)
    return tuple(
        slide_share(leaf, [(one[place], two[place]) for one, two in pairs])
        for place, leaf in enumerate(columns)
    )


def digest(item: Any) -> tuple[bytes, int, list[Any]]:
    """Hash of structure and content, bytes of content, and the values of the leaves."""
    shape = shape_of(item)
    values, total, hasher = take_apart(item, shape), 0, hashlib.blake2b(repr(shape).encode(), digest_size=16)
    for leaf, value in zip(leaves_of(shape), values, strict=True):
        if leaf.kind not in ("none", "hole"):
            content = raw(leaf, value)
            hasher.update(content.data)
            total += content.nbytes
    return hasher.digest(), total, values


def _wider(known: Shape | None, found: Shape) -> Shape:
    try:
        return found if known is None else widened(known, found)
    except Mismatch as difference:
        raise CannotCacheError(f"items differ in structure: {difference}") from difference


def _require_equal(one: SamplePass, two: SamplePass, when: str) -> None:
    for row in two.digests:
        if one.digests[row] != two.digests[row]:
            raise CannotCacheError(f"item {row} is another one {when}")


def _require_replay(source: CacheSource, rows: Sequence[int]) -> None:
    """An item whose transforms are called on what was kept equals the one that the dataset makes."""
    places, recorder = live.transforms_of(source.dataset), live.Recorder(source.dataset)
    for row in rows:
        kept = recorder.fetch(source.fetch, row)
        random_states.seed(row)
        whole = digest(source.fetch(row))[0]
        random_states.seed(row)
        if digest(live.replay(kept, places))[0] != whole:
            raise CannotCacheError(
                f"item {row} is another one when its transforms are called on what they were given"
            )


def _require_same_at_once(source: CacheSource, seen: SamplePass) -> None:
    rows = list(seen.digests)[:LEAST]
    indices = rows if source.indices is None else [source.indices[row] for row in rows]
    items = source.dataset.__getitems__(indices)
    if len(items) != len(rows) or any(
        digest(item)[0] != seen.digests[row] for row, item in zip(rows, items, strict=True)
    ):
        raise CannotCacheError("its __getitems__ gives other items than its __getitem__")


# Whether a dataset's items fit into memory or onto the disk, with room to spare.


DISK_MARGIN = 0.1  # of the free space stays free: checkpoints and logs need some
INDEX_BYTES = 16  # of each value of varying size, and of each window
CHUNK_S, CHUNK_BYTES, CHUNK_MOST = 0.25, 8 << 20, 2048
UNSURE = 1.2  # times what samples of varying sizes say


def needed_bytes(proof: SampleSurvey, count: int) -> int:
    """All items at once, as the samples say. Windows that overlap are counted by what is new in each."""
    leaves = leaves_of(proof.shape)
    whole = sum(_bytes(leaf) for leaf, new in zip(leaves, proof.sliding, strict=True) if new is not None)
    new = sum(_bytes(leaf) * new for leaf, new in zip(leaves, proof.sliding, strict=True) if new is not None)
    varies = any(leaf.shape is None for leaf in leaves)
    each = (proof.item_bytes - whole) * (UNSURE if varies else 1.0) + new + INDEX_BYTES * len(leaves)
    return int(each * count + whole * (1 + count / chunk_items(proof)))


def chunk_items(proof: SampleSurvey) -> int:
    """Items that one process fetches at a time: long enough to be worth a message, short enough to show progress."""
    by_time = CHUNK_S / max(proof.item_s, 1e-7)
    by_size = CHUNK_BYTES / max(proof.item_bytes, 1.0)
    return max(1, min(int(min(by_time, by_size)), CHUNK_MOST))


def require_memory(needed: int) -> int:
    """The most bytes that may be used. Each rank of a machine keeps its own."""
    ranks = max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1") or 1))
    held = Fit(needed * ranks, free_memory())
    if not held.fits:
        copies = f" for each of {ranks} ranks" if ranks > 1 else ""
        raise CannotCacheError(
            f"all items need {size(needed)}{copies}, and {size(held.free)} of memory are free"
        )
    return held.free // ranks


def require_disk(needed: int, folder: Path) -> int:
    """The most bytes that may be written."""
    free = shutil.disk_usage(folder).free
    most = int(free * (1.0 - DISK_MARGIN))
    if needed > most:
        raise NoFileError(f"all items need {size(needed)}, and {size(free)} are free in {folder}")
    return most


def free_memory() -> int:
    """Bytes that are still to be had, within what a container grants."""
    if not (about := _pairs(Path("/proc/meminfo"))):
        import psutil

        return int(psutil.virtual_memory().available)
    return min([about["MemAvailable:"] * 1024, *_granted()])


def _granted() -> list[int]:
    """What is left of the limit of each cgroup that this process is in, version 2 and 1."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = Path("/sys/fs/cgroup/memory" if controllers == "memory" else "/sys/fs/cgroup")
        if controllers not in ("", "memory"):
            continue
        inner = Path(path.lstrip("/"))
        for folder in {top, top / inner, *(top / each for each in inner.parents)}:
            left += _left(folder)
    return left


def _left(folder: Path) -> list[int]:
    """Idle file cache counts as left: the kernel gives it up on demand."""
    for names in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            limit, used = ((folder / name).read_text().strip() for name in names[:2])
        except OSError:
            continue
        if limit.isdigit() and int(limit) < 1 << 60:
            idle = _pairs(folder / "memory.stat").get(names[2], 0)
            return [max(0, int(limit) - max(0, int(used) - idle))]
    return []


def _pairs(path: Path) -> dict[str, int]:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def _bytes(leaf: Leaf) -> int:
    return math.prod(leaf.shape or ()) * itemsize(leaf)
