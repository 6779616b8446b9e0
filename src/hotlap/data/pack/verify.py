"""Look whether a folder of shards is as it was sealed; what is damaged is named, down to the sample."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hotlap.data.budget import usable_cores
from hotlap.data.formats import format_named
from hotlap.data.samples import checksum
from hotlap.data.sealed import CHECKSUMS, SEAL, Seal, file_digest, read_seal
from hotlap.errors import HotlapError, UsageError

MANY = 20
"""Samples of a shard that are named; of more, the count says enough."""


@dataclass(frozen=True)
class Damage:
    """A file that is not as it was written, with the keys of the first of the `count` samples that have changed."""

    file: str
    what: str
    samples: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class Verified:
    seal: Seal
    damage: tuple[Damage, ...]


def verify(folder: Path) -> Verified:
    """Read every byte; hashing releases the GIL, so threads share the work."""
    seal = read_seal(folder)
    if seal is None:
        remedy = "name a folder that hotlap pack completed; if it was cut off, run the same command again"
        raise UsageError(f"{folder} holds no {SEAL}.", remedy)
    with ThreadPoolExecutor(usable_cores()) as threads:
        faults = list(threads.map(lambda name: _fault(folder, seal, name), seal.files))
    wrong = {name: fault for name, fault in zip(seal.files, faults, strict=True) if fault}
    return Verified(seal, tuple(_damage(folder, seal, wrong)))


def _fault(folder: Path, seal: Seal, name: str) -> str:
    written = seal.files[name]
    try:
        found = file_digest(folder / name)
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if found.bytes != written.bytes:
        return f"has {found.bytes} bytes, not {written.bytes}"
    return "" if found.sha256 == written.sha256 else "holds other bytes than were written"


def _damage(folder: Path, seal: Seal, wrong: dict[str, str]) -> Iterator[Damage]:
    shards = {each.name: number for number, each in enumerate(seal.shards)}
    crcs = None if CHECKSUMS in wrong else np.load(folder / CHECKSUMS)
    for name, fault in wrong.items():
        if name not in shards or crcs is None or not (folder / name).exists():
            yield Damage(name, fault)
            continue
        keys = list(_changed(folder, seal, shards[name], crcs))
        where = "" if keys else ", outside of every sample"
        yield Damage(name, fault + where, tuple(keys[:MANY]), len(keys))


def _changed(folder: Path, seal: Seal, number: int, crcs: np.ndarray[Any, Any]) -> Iterator[str]:
    """The samples of a shard that no longer have their checksum."""
    shard = seal.shards[number]
    first = sum(each.samples for each in seal.shards[:number])
    try:
        reader = format_named(seal.format).open(folder / shard.name)
        keys = reader.keys
    except HotlapError:
        yield f"all {shard.samples}"
        return
    for row in range(shard.samples):
        try:
            intact = checksum(reader.read(row)) == crcs[first + row]
        except (HotlapError, ValueError, IndexError, KeyError):
            intact = False
        if not intact:
            yield keys[row] if row < len(keys) else f"number {row}"
