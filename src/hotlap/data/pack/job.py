"""What is to be packed, and how it is split into shards: the same on every machine, however many workers there are."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

from hotlap.data.pack.prepare import Preparation
from hotlap.data.pack.source import Source
from hotlap.data.samples import size_of
from hotlap.errors import UsageError
from hotlap.facts.codec import SCHEMA, to_plain

SHARD_BYTES = 256 * 2**20
"""Large enough to be read in long runs, small enough that one cut off costs seconds and many make a good shuffle."""
_WEIGHED = 8


@dataclass(frozen=True)
class Order:
    """What the user asks for. `transform` is module:function; `normalise` names fields."""

    source: str
    format: str = "tar"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    transform: str | None = None
    normalise: tuple[str, ...] = ()
    shards: int | None = None


@dataclass(frozen=True)
class Job:
    """An order on a source as it is now: shard n holds the samples `bounds[n]` up to `bounds[n + 1]`."""

    order: Order
    fingerprint: str
    bounds: tuple[int, ...]
    template: Any

    @property
    def identity(self) -> str:
        """Two jobs of one identity write the same bytes."""
        plain = {"schema": SCHEMA, **to_plain(self)}
        return hashlib.sha256(json.dumps(plain, sort_keys=True, default=repr).encode()).hexdigest()

    @property
    def shards(self) -> int:
        return len(self.bounds) - 1

    @property
    def samples(self) -> int:
        return self.bounds[-1]


def plan_job(order: Order, source: Source) -> Job:
    """Look at the source and split it."""
    preparation = Preparation(order.transform, order.normalise, source.structured)
    first, template = preparation.first(source)
    fields = {name for name, value in first.items() if hasattr(value, "dtype")}
    for name in order.normalise:
        if name not in fields:
            known = ", ".join(sorted(fields)) or "none"
            raise UsageError(
                f"'{name}' is no array field, so it cannot be normalised.", f"array fields are: {known}"
            )
    sizes = None if preparation.changes else source.sizes()
    count = len(source.keys)
    weights = sizes or [_weighed(source, preparation)] * count
    return Job(order, source.fingerprint(), split(weights, order.shards), template)


def split(weights: Sequence[int], shards: int | None) -> tuple[int, ...]:
    """Bounds of shards of about equal bytes, none empty."""
    count, total = len(weights), sum(weights)
    wanted = shards or max(1, math.ceil(total / SHARD_BYTES))
    if shards is not None and not 0 < shards <= count:
        raise UsageError(
            f"{count} samples cannot fill {shards} shards.", f"choose --shards from 1 to {count}"
        )
    wanted = min(wanted, count)
    ends = [0]
    reached = list(accumulate(weights))
    at = 0
    for shard in range(1, wanted):
        goal = total * shard / wanted
        while at < count and reached[at] < goal:
            at += 1
        ends.append(min(max(at + 1, ends[-1] + 1), count - (wanted - shard)))
    bounds = (*ends, count)
    assert all(start < end for start, end in pairwise(bounds))
    return bounds


def _weighed(source: Source, preparation: Preparation) -> int:
    """Bytes of a sample, from a few of them over the whole source."""
    count = len(source.keys)
    picked = sorted({count * part // _WEIGHED for part in range(_WEIGHED)})
    sizes = [size_of(preparation.fields(source, index)) for index in picked]
    return max(1, sum(sizes) // len(sizes))
