"""Where an epoch stands, so that a new process can go on with the next sample.

A sampler draws its order when an epoch begins. The state holds the random generators as they were then, and how
many batches the consumer has had: the order is drawn again, and what was had is passed over without being fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import DataLoader

from hotlap.data import loader_seeds as seeds
from hotlap.errors import HotlapError

SCHEMA = 1


def at_start(loader: DataLoader[Any]) -> dict[str, Any]:
    """To be taken before an epoch begins."""
    return {
        "random": seeds.states(),
        "generators": {name: part.generator.get_state() for name, part in _drawing(loader)},
        "epochs": {name: part.epoch for name, part in _counting(loader)},
    }


def state(start: Mapping[str, Any] | None, position: int) -> dict[str, Any]:
    return {"schema": SCHEMA, "position": position, "start": start if position else None}


def read(kept: Mapping[str, Any]) -> Mapping[str, Any]:
    if kept.get("schema") != SCHEMA:
        raise HotlapError(
            f"this state of a loader has the schema {kept.get('schema')!r}, known is {SCHEMA}",
            "resume with the version of hotlap that wrote it",
        )
    return kept


@contextmanager
def as_at_start(loader: DataLoader[Any], start: Mapping[str, Any]) -> Iterator[None]:
    """The generators that samplers draw from are as they were; afterwards the global ones are the script's again."""
    script = seeds.states()
    seeds.restore(start["random"])
    for name, part in _drawing(loader):
        if name in start["generators"]:
            part.generator.set_state(start["generators"][name])
    for name, part in _counting(loader):
        part.set_epoch(start["epochs"].get(name, part.epoch))
    try:
        yield
    finally:
        seeds.restore(script)


def _parts(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    yield "loader", loader
    yield "sampler", loader.sampler
    yield "batch_sampler", loader.batch_sampler
    yield "inner", getattr(loader.batch_sampler, "sampler", None)


def _drawing(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    """Samplers with a generator of their own."""
    return (
        each for each in _parts(loader) if isinstance(getattr(each[1], "generator", None), torch.Generator)
    )


def _counting(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    """Samplers that count epochs, as DistributedSampler does."""
    return (
        each
        for each in _parts(loader)
        if hasattr(each[1], "set_epoch") and isinstance(getattr(each[1], "epoch", None), int)
    )
