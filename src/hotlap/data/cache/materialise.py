"""Keeps the items of a dataset, in memory or in a file, and gives a dataset that serves them."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import TensorDataset, default_collate

from hotlap.data.cache import source as live
from hotlap.data.cache.build import build
from hotlap.data.cache.fingerprint import fingerprint
from hotlap.data.cache.messages import CannotCacheError, NoFileError, progress, say
from hotlap.data.cache.proof import (
    Collate,
    SamplePass,
    SampleSurvey,
    digest,
    needed_bytes,
    prove,
    require_disk,
    require_memory,
    same_as,
)
from hotlap.data.cache.served import Kept, kept_of, serve
from hotlap.data.cache.shape import leaves_of
from hotlap.data.cache.source import CacheSource, source_of
from hotlap.data.cache.store import MemoryDrawer, Store, store_of_tensors
from hotlap.data.cache.watch import DatasetDependencies
from hotlap.units import size

CHECKED = 3  # items of a cache from another run that are fetched once more before it is trusted


@dataclass(frozen=True)
class _Made:
    """Kept items, the files that they were read from, and what fetching them changed of the dataset."""

    store: Store
    files: Collection[str] = ()
    volatile: Collection[str] = ()


@dataclass(frozen=True)
class _Remembered:
    """What was kept of a dataset that is still there: a script may build its loader anew for each epoch."""

    dataset: weakref.ref[Any]
    store: Store
    places: NDArray[np.int64] | None
    watch: DatasetDependencies


_remembered: dict[int, _Remembered] = {}


def materialise(dataset: Any, keep: str = "memory", collate: Collate | None = default_collate) -> Any:
    """A dataset with the same items, kept in `memory` or in a `file`; raises CannotCacheError with the reason.

    `collate` makes batches of them, None where the script gets single items.

    A file that is not to be had (a full disk, parameters without a stable hash) is replaced by memory.
    """
    if kept_of(dataset) is not None:
        return dataset
    known = _remembered.get(id(dataset))
    if known is not None and known.dataset() is dataset and not known.watch.changed(at_once=True):
        return _served(dataset, known.store, known.places, known.watch)
    source, places = source_of(dataset)
    _require_worth(source)
    making = _in_file(source, collate) if keep == "file" else _in_memory(source, collate)
    watch = DatasetDependencies(dataset, making.store.layout.live, making.files, making.volatile)
    _remember(dataset, making.store, places, watch)
    return _served(dataset, making.store, places, watch)


def check(dataset: Any, collate: Collate | None) -> None:
    """Raises CannotCacheError where it could not be kept in memory; keeps nothing."""
    if kept_of(dataset) is None:
        source, _ = source_of(dataset)
        _require_worth(source)
        require_memory(needed_bytes(prove(source, collate), source.count))


def serve_tensors(dataset: Any) -> Any | None:
    """A TensorDataset, or a part of one, needs no cache: it is served as it is. None for any other."""
    source, places = source_of(dataset)
    below = source.dataset
    if type(below) is not TensorDataset or not all(each.device.type == "cpu" for each in below.tensors):
        return None
    rows = None if places is None else np.array(source.indices, np.int64)[places]
    return _served(dataset, store_of_tensors(below.tensors), rows, DatasetDependencies(dataset, False))


def _require_worth(source: CacheSource) -> None:
    if type(source.dataset) is TensorDataset:
        raise CannotCacheError(
            "its items are tensors in memory already; `batched-fetch` serves them as they are"
        )


def _served(dataset: Any, store: Store, places: NDArray[np.int64] | None, watch: DatasetDependencies) -> Any:
    below = source_of(dataset)[0].dataset
    transforms = live.transforms_of(below) if store.layout.live else {}
    kept = Kept(dataset, store, places, watch, transforms)
    atexit.register(_look_a_last_time, weakref.ref(kept))
    return serve(kept)


def _look_a_last_time(kept: weakref.ref[Kept]) -> None:
    if (held := kept()) is not None:
        held.last_look()


def _remember(
    dataset: Any, store: Store, places: NDArray[np.int64] | None, watch: DatasetDependencies
) -> None:
    try:
        weakref.finalize(dataset, _remembered.pop, id(dataset), None)
        _remembered[id(dataset)] = _Remembered(weakref.ref(dataset), store, places, watch)
    except TypeError:  # a list, say, cannot be watched for its end
        return


def _in_memory(source: CacheSource, collate: Collate | None) -> _Made:
    proof = prove(source, collate)
    needed = needed_bytes(proof, source.count)
    most = require_memory(needed)
    drawer = MemoryDrawer()
    with progress(_told(source, needed, "in memory"), source.count) as advance:
        built = build(source, proof, drawer, most, advance)
    store = Store(built.layout, drawer)
    _require_served(store, proof)
    return _Made(store, [each[0] for each in built.files], built.volatile)


def _in_file(source: CacheSource, collate: Collate | None) -> _Made:
    try:
        return _from_file(source, collate)
    except NoFileError as refusal:
        say(f"no file is kept: {refusal.what}")
    except OSError as fault:
        say(f"no file could be kept: {fault}")
    return _in_memory(source, collate)


def _from_file(source: CacheSource, collate: Collate | None) -> _Made:
    if os.name != "posix":
        raise NoFileError("locks of files are not to be had here")
    from hotlap.data.cache import folder

    key, home = fingerprint(source), folder.home()
    with folder.locked(home, key):
        found = folder.find(home, key)
        if isinstance(found, folder.OpenCache):
            if (again := _still(source, found.store, found.digests)) is not None:
                say(
                    f"{found.store.layout.count:,} items of {type(source.dataset).__name__} come from {home / key}"
                )
                return _Made(found.store, found.files, {*found.volatile, *again.volatile})
            found = "its items are not those of the dataset"
        if found != folder.NONE:
            say(f"the cache {home / key} is built anew: {found}")
        volatile = _write_file(source, key, home, collate)
        found = folder.find(home, key)
    if isinstance(found, str):
        raise NoFileError(f"the cache {home / key} was written, but {found}")
    return _Made(found.store, found.files, volatile)


def _write_file(source: CacheSource, key: str, home: Path, collate: Collate | None) -> Collection[str]:
    from hotlap.data.cache import folder

    proof = prove(source, collate)
    if any(leaf.kind == "object" for leaf in leaves_of(proof.shape)):
        raise NoFileError("items hold objects that only memory can keep")
    needed = needed_bytes(proof, source.count)
    folder.make_room(home, needed)
    free = require_disk(needed, home)
    draft = folder.draft(home, key)
    try:
        with progress(_told(source, needed, f"in {home}"), source.count) as advance:
            built = build(source, proof, draft, free, advance)
        _require_served(Store(built.layout, draft), proof)
        folder.publish(home, key, draft, built, proof.digests)
        return built.volatile
    finally:
        draft.remove()


def _still(source: CacheSource, store: Store, digests: dict[int, bytes]) -> SamplePass | None:
    """A look at items of the dataset, where a cache of another run holds the same, as far as some of them tell."""
    some = dict(list(digests.items())[:CHECKED])
    return same_as(source, some, store.layout.live) if store.layout.count == source.count else None


def _require_served(store: Store, proof: SampleSurvey) -> None:
    for row, expected in proof.digests.items():
        if digest(store.item(row))[0] != expected:
            raise CannotCacheError(f"item {row} does not come out of the cache as it went in")


def _told(source: CacheSource, needed: int, where: str) -> str:
    return f"{source.count:,} items of {type(source.dataset).__name__} {where}, about {size(needed)}"
