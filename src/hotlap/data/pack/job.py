"""What is to be packed, and how it is split into shards: the same on every machine, however many workers there are."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hotlap.data.decode import decode_fields, default_decoders
from hotlap.data.pack.source import SampleSource
from hotlap.data.pack.sources.dataset import import_object
from hotlap.data.samples import Fields, SampleError, flatten, size_of
from hotlap.errors import HotlapError, UsageError
from hotlap.facts.codec import SCHEMA, to_plain

SHARD_BYTES = 256 * 2**20
"""Large enough to be read in long runs, small enough that one cut off costs seconds and many make a good shuffle."""
_WEIGHED = 8


@dataclass(frozen=True)
class PackRequest:
    """What the user asks for. `transform` is module:function; `normalise` names fields."""

    source: str
    format: str = "tar"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    transform: str | None = None
    normalise: tuple[str, ...] = ()
    shards: int | None = None


@dataclass(frozen=True)
class PackJob:
    """An order on a source as it is now: shard n holds the samples `bounds[n]` up to `bounds[n + 1]`."""

    order: PackRequest
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


def plan_job(order: PackRequest, source: SampleSource) -> PackJob:
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
    return PackJob(order, source.fingerprint(), split(weights, order.shards), template)


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


def _weighed(source: SampleSource, preparation: Preparation) -> int:
    """Bytes of a sample, from a few of them over the whole source."""
    count = len(source.keys)
    picked = sorted({count * part // _WEIGHED for part in range(_WEIGHED)})
    sizes = [size_of(preparation.fields(source, index)) for index in picked]
    return max(1, sum(sizes) // len(sizes))


# From what a source gives to what a shard stores: decoded, transformed and normalised where that was asked for.


AGAIN = "then run the same command again: finished shards are kept"


class Preparation:
    """Without a transform and without normalising, files are copied as they are."""

    def __init__(self, transform: str | None, normalise: tuple[str, ...], structured: bool) -> None:
        self._transform: Callable[[Any], Any] | None = import_object(transform) if transform else None
        self._name = transform
        self._decodes = (transform is not None or bool(normalise)) and not structured
        self._flattens = structured or self._decodes
        self._decoders = default_decoders()

    @property
    def changes(self) -> bool:
        return self._flattens

    def first(self, source: SampleSource) -> tuple[Fields, Any]:
        """The first sample, and the structure of all items (None where fields are copied)."""
        return self._prepared(source, 0)

    def fields(self, source: SampleSource, index: int, template: Any = None) -> Fields:
        """What is stored of a sample; one of another structure than the first is refused."""
        fields, found = self._prepared(source, index)
        if template is not None and found != template:
            what = (
                f"{source.where(index)} has another structure than the first sample: {found}, not {template}."
            )
            raise SampleError(what, f"give every item the same structure, {AGAIN}")
        return fields

    def _prepared(self, source: SampleSource, index: int) -> tuple[Fields, Any]:
        try:
            item = source.read(index)
            item = decode_fields(item, self._decoders) if self._decodes else item
            item = self._transform(item) if self._transform else item
            return flatten(item) if self._flattens else (item, None)
        except HotlapError as error:
            where = source.where(index)
            what = error.what if where in error.what else f"{where}: {error.what}"
            raise SampleError(what, f"{error.remedy}, {AGAIN}") from None
        except Exception as error:  # the user's own code may raise anything
            by = f" by {self._name}" if self._transform else ""
            what = f"{source.where(index)} cannot be read{by}: {type(error).__name__}: {error}."
            raise SampleError(what, f"mend it or leave it out, {AGAIN}") from error


def normalised(fields: Fields, moments: Mapping[str, Moments]) -> Fields:
    """Every named field less its mean, over its standard deviation, as float32."""
    changed = dict(fields)
    for name, each in moments.items():
        middle, spread = np.asarray(each.mean), np.asarray(each.std)
        values = fields[name]
        scaled = (values - middle) / spread if values.size else values
        changed[name] = scaled.astype(np.float32).reshape(values.shape)
    return changed


# Mean and standard deviation of a field over all samples, gathered in parts and joined.


@dataclass(frozen=True)
class Moments:
    """For each position of the last axis where all samples agree on its length, else one for all values.

    `squares` is the sum of squared distances from the mean, which can be joined without loss.
    """

    count: int
    mean: tuple[float, ...]
    squares: tuple[float, ...]

    @property
    def std(self) -> tuple[float, ...]:
        """As sklearn's StandardScaler: of the population, and 1 where all values are equal."""
        spread = (math.sqrt(each / self.count) if self.count else 0.0 for each in self.squares)
        return tuple(each or 1.0 for each in spread)


def moments_of(values: np.ndarray[Any, Any]) -> Moments:
    """Of one sample."""
    if not values.size:
        return Moments(0, (0.0,), (0.0,))
    rows = np.asarray(values, dtype=np.float64).reshape(-1, values.shape[-1] if values.ndim else 1)
    mean = rows.mean(axis=0)
    return Moments(len(rows), tuple(mean.tolist()), tuple(((rows - mean) ** 2).sum(axis=0).tolist()))


def joined(one: Moments, two: Moments) -> Moments:
    """Of all values of both (Chan's rule)."""
    if not one.count or not two.count:
        return one if one.count else two
    if len(one.mean) != len(two.mean):
        one, two = overall(one), overall(two)
    count = one.count + two.count
    gaps = [other - mean for mean, other in zip(one.mean, two.mean, strict=True)]
    weight = one.count * two.count / count
    mean = tuple(mean + gap * two.count / count for mean, gap in zip(one.mean, gaps, strict=True))
    pairs = zip(one.squares, two.squares, gaps, strict=True)
    return Moments(count, mean, tuple(mine + other + gap * gap * weight for mine, other, gap in pairs))


def overall(each: Moments) -> Moments:
    """One mean for all positions."""
    width = len(each.mean)
    mean = sum(each.mean) / width
    squares = sum(each.squares) + each.count * sum((part - mean) ** 2 for part in each.mean)
    return Moments(each.count * width, (mean,), (squares,))
