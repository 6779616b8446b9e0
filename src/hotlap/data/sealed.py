"""pack.json: what a finished folder of shards holds, with a checksum for every file. It is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hotlap.errors import FactError
from hotlap.facts.codec import SCHEMA, check_schema, from_plain, to_plain

SEAL = "pack.json"
CHECKSUMS = "checksums.npy"
"""A CRC-32 of every sample, in order, so that a damaged one can be named."""


@dataclass(frozen=True)
class Shard:
    """One finished shard."""

    name: str
    samples: int


@dataclass(frozen=True)
class Written:
    """A file of the folder."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Seal:
    """`job` identifies what was packed and how; `template` is the structure of an item where there is one."""

    format: str
    job: str
    source: str
    samples: int
    shards: tuple[Shard, ...]
    files: Mapping[str, Written]
    template: Any = None


def seal_text(seal: Seal) -> str:
    """pack.json; it holds a checksum of itself."""
    plain = {"schema": SCHEMA, **to_plain(seal)}
    return json.dumps({**plain, "seal": _digest(plain)}, indent=1) + "\n"


def read_seal(folder: Path) -> Seal | None:
    """The seal of a folder, None where there is none; a damaged one is refused."""
    path = folder / SEAL
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        check_schema(plain, path)
        stored = plain.pop("seal", None)
    except FileNotFoundError:
        return None
    except (ValueError, OSError, AttributeError, TypeError) as error:
        raise FactError(
            f"{path} cannot be read: {error}.", "copy the folder again, or pack it again"
        ) from None
    if stored != _digest(plain):
        raise FactError(
            f"{path} has been changed since it was written.", "copy the folder again, or pack it again"
        )
    seal: Seal = from_plain(Seal, plain, SEAL)
    return seal


def file_digest(path: Path) -> Written:
    with path.open("rb") as file:
        return Written(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def _digest(plain: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
