"""Keeps the items of a dataset, in memory or in a file, and gives a dataset that serves them."""

from __future__ import annotations

import os
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from hotlap.data.cache import live
from hotlap.data.cache.budget import needed_bytes, require_disk, require_memory
from hotlap.data.cache.build import build
from hotlap.data.cache.drawer import MemoryDrawer
from hotlap.data.cache.fingerprint import fingerprint
from hotlap.data.cache.progress import progress, say
from hotlap.data.cache.proof import Proof, digest, prove, same_as
from hotlap.data.cache.refusal import CannotCacheError, NoFileError
from hotlap.data.cache.served import Kept, kept_of, serve
from hotlap.data.cache.shape import leaves_of
from hotlap.data.cache.source import Source, source_of
from hotlap.data.cache.store import Store, store_of_tensors
from hotlap.data.cache.watch import Watch
from hotlap.units import size

CHECKED = 3  # items of a cache from another run that are fetched once more before it is trusted


@dataclass(frozen=True)
class _Remembered:
    """What was kept of a dataset that is still there: a script may build its loader anew for each epoch."""

    dataset: weakref.ref[Any]
    store: Store
    places: NDArray[np.int64] | None
    watch: Watch


_remembered: dict[int, _Remembered] = {}


def materialise(dataset: Any, keep: str = "memory") -> Any:
    """A dataset with the same items, kept in `memory` or in a `file`; raises CannotCacheError with the reason.

    A file that is not to be had (a full disk, parameters without a stable hash) is replaced by memory.
    """
    if kept_of(dataset) is not None:
        return dataset
    known = _remembered.get(id(dataset))
    if known is not None and known.dataset() is dataset and not known.watch.changed():
        return _served(dataset, known.store, known.places, known.watch)
    source, places = source_of(dataset)
    _require_worth(source)
    store = _in_file(source) if keep == "file" else _in_memory(source)
    watch = Watch(dataset, store.layout.live)
    _remember(dataset, store, places, watch)
    return _served(dataset, store, places, watch)


def check(dataset: Any) -> None:
    """Raises CannotCacheError where it could not be kept in memory; keeps nothing."""
    if kept_of(dataset) is None:
        source, _ = source_of(dataset)
        _require_worth(source)
        require_memory(needed_bytes(prove(source), source.count))


def serve_tensors(dataset: Any) -> Any | None:
    """A TensorDataset, or a part of one, needs no cache: it is served as it is. None for any other."""
    source, places = source_of(dataset)
    below = source.dataset
    if type(below) is not TensorDataset or not all(each.device.type == "cpu" for each in below.tensors):
        return None
    rows = None if places is None else np.array(source.indices, np.int64)[places]
    return _served(dataset, store_of_tensors(below.tensors), rows, Watch(dataset, False))


def _require_worth(source: Source) -> None:
    if type(source.dataset) is TensorDataset:
        raise CannotCacheError(
            "its items are tensors in memory already; `batched-fetch` serves them as they are"
        )


def _served(dataset: Any, store: Store, places: NDArray[np.int64] | None, watch: Watch) -> Any:
    below = source_of(dataset)[0].dataset
    transforms = live.transforms_of(below) if store.layout.live else {}
    return serve(Kept(dataset, store, places, watch, transforms))


def _remember(dataset: Any, store: Store, places: NDArray[np.int64] | None, watch: Watch) -> None:
    try:
        weakref.finalize(dataset, _remembered.pop, id(dataset), None)
        _remembered[id(dataset)] = _Remembered(weakref.ref(dataset), store, places, watch)
    except TypeError:  # a list, say, cannot be watched for its end
        return


def _in_memory(source: Source) -> Store:
    proof = prove(source)
    needed = needed_bytes(proof, source.count)
    most = require_memory(needed)
    drawer = MemoryDrawer()
    with progress(_told(source, needed, "in memory"), source.count) as advance:
        store = Store(build(source, proof, drawer, most, advance).layout, drawer)
    _require_served(store, proof)
    return store


def _in_file(source: Source) -> Store:
    try:
        return _from_file(source)
    except NoFileError as refusal:
        say(f"no file is kept: {refusal.what}")
    except OSError as fault:
        say(f"no file could be kept: {fault}")
    return _in_memory(source)


def _from_file(source: Source) -> Store:
    if os.name != "posix":
        raise NoFileError("locks of files are not to be had here")
    from hotlap.data.cache import folder

    key, home = fingerprint(source), folder.home()
    with folder.locked(home, key):
        found = folder.find(home, key)
        if isinstance(found, folder.Found):
            if _still(source, found.store, found.digests):
                say(
                    f"{found.store.layout.count:,} items of {type(source.dataset).__name__} come from {home / key}"
                )
                return found.store
            found = "its items are not those of the dataset"
        if found != folder.NONE:
            say(f"the cache {home / key} is built anew: {found}")
        _write_file(source, key, home)
        found = folder.find(home, key)
    if isinstance(found, str):
        raise NoFileError(f"the cache {home / key} was written, but {found}")
    return found.store


def _write_file(source: Source, key: str, home: Path) -> None:
    from hotlap.data.cache import folder

    proof = prove(source)
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
    finally:
        draft.remove()


def _still(source: Source, store: Store, digests: dict[int, bytes]) -> bool:
    """Whether a cache of another run holds the items of this dataset, as far as some of them tell."""
    some = dict(list(digests.items())[:CHECKED])
    return store.layout.count == source.count and same_as(source, some, store.layout.live)


def _require_served(store: Store, proof: Proof) -> None:
    for row, expected in proof.digests.items():
        if digest(store.item(row))[0] != expected:
            raise CannotCacheError(f"item {row} does not come out of the cache as it went in")


def _told(source: Source, needed: int, where: str) -> str:
    return f"{source.count:,} items of {type(source.dataset).__name__} {where}, about {size(needed)}"
