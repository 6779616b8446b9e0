"""From what a source gives to what a shard stores: decoded, transformed and normalised where that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hotlap.data.decode import decode_fields, default_decoders
from hotlap.data.pack.moments import Moments
from hotlap.data.pack.source import Source
from hotlap.data.pack.sources.dataset import import_object
from hotlap.data.samples import Fields, SampleError, flatten
from hotlap.errors import HotlapError

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

    def first(self, source: Source) -> tuple[Fields, Any]:
        """The first sample, and the structure of all items (None where fields are copied)."""
        return self._prepared(source, 0)

    def fields(self, source: Source, index: int, template: Any = None) -> Fields:
        """What is stored of a sample; one of another structure than the first is refused."""
        fields, found = self._prepared(source, index)
        if template is not None and found != template:
            what = (
                f"{source.where(index)} has another structure than the first sample: {found}, not {template}."
            )
            raise SampleError(what, f"give every item the same structure, {AGAIN}")
        return fields

    def _prepared(self, source: Source, index: int) -> tuple[Fields, Any]:
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
