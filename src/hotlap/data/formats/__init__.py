"""The shard formats: one file each, found by walking this folder."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from hotlap.discover import pick, units
from hotlap.errors import UsageError
from hotlap.ports.shard_format import ShardFormat

ENTRY_POINTS = "hotlap.formats"
"""The group in which a package names formats of its own."""


@cache
def all_formats() -> dict[str, ShardFormat]:
    """Every format by its id."""
    found = units(sys.modules[__name__], ShardFormat, ENTRY_POINTS)  # type: ignore[type-abstract]
    return {each.id: each for each in found}


def format_named(name: str) -> ShardFormat:
    """The format with this id; a typo gets the nearest one."""
    return all_formats()[pick("shard format", name, all_formats())]


def format_of(path: Path) -> ShardFormat:
    """The format of a shard that no pack.json describes."""
    for each in all_formats().values():
        if each.recognises(path):
            return each
    known = ", ".join(sorted({each.suffix for each in all_formats().values()}))
    raise UsageError(f"{path} is no shard that hotlap reads.", f"name a folder of shards, or a file: {known}")
