"""Proof that items are deterministic: sampled ones are fetched again and again, and must be bit-equal.

Twice in one process, in another order and under other random states; once more in another process; and, where the
dataset knows of epochs, from a copy that was told of another one, since what is kept serves all of them. Nobody may
draw from the random numbers that all share either: an item that draws and drops the number is equal each time, yet the
script's random numbers would go on differently without it.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from hotlap.data.cache import child, live, rng, witnesses
from hotlap.data.cache.encode import raw, slide_share
from hotlap.data.cache.refusal import CannotCacheError
from hotlap.data.cache.shape import Mismatch, Shape, leaves_of, shape_of, take_apart, widened
from hotlap.data.cache.source import Source
from hotlap.epochs import NoOtherEpochError, in_other_epochs

SPREAD = 12  # samples over the whole dataset
PAIRS = 4  # places at which two items in a row are looked at
ENOUGH_S = 2.0  # of fetching in one pass: slow items are not all waited for
LEAST = 4  # samples, however slow
PATIENCE_S = 120.0
THREADS_PATIENCE_S = 10.0

Fetch = Callable[[int], Any]


@dataclass(frozen=True)
class Proof:
    """What was seen of the samples. `live`: transforms stay live. `sliding`: of each window, what is new.

    `alone`: items are read through a file position that forked processes share, so only one may fetch at a time.
    """

    shape: Shape
    sliding: tuple[float | None, ...]
    digests: dict[int, bytes]
    item_bytes: float
    item_s: float
    live: bool = False
    alone: bool = False


@dataclass
class Look:
    """One pass over samples."""

    digests: dict[int, bytes] = field(default_factory=dict)
    shape: Shape | None = None
    sizes: list[int] = field(default_factory=list)
    sliding: tuple[float | None, ...] = ()
    seconds: float = 0.0


def prove(source: Source) -> Proof:
    """Raises CannotCacheError with the reason where items are not deterministic, also without their transforms."""
    try:
        return _prove(source, False)
    except CannotCacheError as refusal:
        if not live.transforms_of(source.dataset):
            raise
        try:
            return _prove(source, True)
        except CannotCacheError as second:
            where = ", ".join(live.transforms_of(source.dataset))
            raise CannotCacheError(f"{refusal.what}, and without {where}: {second.what}") from second


def same_as(source: Source, proof_of: dict[int, bytes], lives: bool) -> bool:
    """Whether items are still those that these digests were taken of."""
    rows = sorted(proof_of)
    before = witnesses.positions()
    try:
        seen: Look = child.call(source, 29, PATIENCE_S, look, rows, lives)
    finally:
        witnesses.put_back(before)
    return all(proof_of[row] == digest for row, digest in seen.digests.items())


def _prove(source: Source, lives: bool) -> Proof:
    rows = samples(source.count)
    before = witnesses.positions()
    try:
        first: Look = child.call(source, 7, PATIENCE_S, look_twice, rows, lives)
        other: Look = child.call(source, 19, PATIENCE_S, look, sorted(first.digests), lives)
        _require_equal(first, other, "in another process")
        child.call(source, 31, PATIENCE_S, require_lasting, first, lives)
        _require_any_threads(source, first, lives)
    finally:
        alone = witnesses.put_back(before)
    assert first.shape is not None
    count = len(first.digests)
    return Proof(
        first.shape,
        first.sliding,
        first.digests,
        sum(first.sizes) / count,
        first.seconds / count,
        lives,
        alone,
    )


def _require_any_threads(source: Source, seen: Look, lives: bool) -> None:
    """Items are kept as one thread computes them; the script's own process may have more."""
    threads = torch.get_num_threads()
    if threads == 1:
        return
    rows = list(seen.digests)[:LEAST]
    try:
        many: Look = child.call(
            source, 23, THREADS_PATIENCE_S + 4 * seen.seconds, look_with, rows, lives, threads
        )
    except child.LateError:  # threads and forks do not go together everywhere
        return
    _require_equal(seen, many, f"when torch computes it with {threads} threads")


def look_with(source: Source, rows: Sequence[int], lives: bool, threads: int) -> Look:
    """In a child: as a process with this many threads does it. The threads of the parent did not come over by the fork,
    but a new thread starts its own."""
    found: list[Look | BaseException] = []

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


def require_lasting(source: Source, seen: Look, lives: bool) -> None:
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


def fetcher(source: Source, lives: bool) -> Fetch:
    """Fetches what is kept of an item: the item, or what its transforms are given."""
    if not lives:
        return source.fetch
    recorder = live.Recorder(source.dataset)
    return lambda row: recorder.fetch(source.fetch, row)


def look_twice(source: Source, rows: Sequence[int], lives: bool) -> Look:
    """In a child: all samples, then again backwards under other random states."""
    first = look(source, rows, lives)
    rng.seed(11)
    again = look(source, list(first.digests)[::-1], lives)
    _require_equal(first, again, "when it is fetched again")
    if lives:
        _require_replay(source, list(first.digests)[:LEAST])
    elif callable(getattr(source.dataset, "__getitems__", None)):
        _require_same_at_once(source, first)
    return first


def look(source: Source, rows: Sequence[int], lives: bool) -> Look:
    """In a child: one pass."""
    fetch, seen, before = fetcher(source, lives), Look(), rng.states()
    values: dict[int, list[Any]] = {}
    for row in rows:
        if seen.seconds > ENOUGH_S and len(seen.digests) >= LEAST:
            break
        began = time.perf_counter()
        item = fetch(row)
        seen.seconds += time.perf_counter() - began
        seen.digests[row], size, values[row] = digest(item)
        seen.sizes.append(size)
        seen.shape = _wider(seen.shape, shape_of(item))
    if whose := rng.moved(before):
        raise CannotCacheError(f"fetching items draws random numbers of {whose}")
    seen.sliding = _sliding(seen.shape, values)
    return seen


def _sliding(shape: Shape | None, values: dict[int, list[Any]]) -> tuple[float | None, ...]:
    leaves = leaves_of(shape) if shape is not None else []
    pairs = [(values[row - 1], values[row]) for row in values if row - 1 in values]
    if any(len(each) != len(leaves) for pair in pairs for each in pair):  # lists of varying lengths
        return (None,) * len(leaves)
    return tuple(
        slide_share(leaf, [(one[place], two[place]) for one, two in pairs])
        for place, leaf in enumerate(leaves)
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


def _require_equal(one: Look, two: Look, when: str) -> None:
    for row in two.digests:
        if one.digests[row] != two.digests[row]:
            raise CannotCacheError(f"item {row} is another one {when}")


def _require_replay(source: Source, rows: Sequence[int]) -> None:
    """An item whose transforms are called on what was kept equals the one that the dataset makes."""
    places, recorder = live.transforms_of(source.dataset), live.Recorder(source.dataset)
    for row in rows:
        kept = recorder.fetch(source.fetch, row)
        rng.seed(row)
        whole = digest(source.fetch(row))[0]
        rng.seed(row)
        if digest(live.replay(kept, places))[0] != whole:
            raise CannotCacheError(
                f"item {row} is another one when its transforms are called on what they were given"
            )


def _require_same_at_once(source: Source, seen: Look) -> None:
    rows = list(seen.digests)[:LEAST]
    indices = rows if source.indices is None else [source.indices[row] for row in rows]
    items = source.dataset.__getitems__(indices)
    if len(items) != len(rows) or any(
        digest(item)[0] != seen.digests[row] for row, item in zip(rows, items, strict=True)
    ):
        raise CannotCacheError("its __getitems__ gives other items than its __getitem__")
