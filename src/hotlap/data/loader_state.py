"""Where an epoch stands, so that a new process can go on with the next sample.

A sampler draws its order when an epoch begins. The state holds the random generators as they were then, and how
many batches the consumer has had: the order is drawn again, and what was had is passed over without being fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.utils.data import DataLoader

from hotlap.data import loader_seeds as seeds
from hotlap.errors import HotlapError

SCHEMA = 1


def at_start(loader: DataLoader[Any]) -> dict[str, Any]:
    """To be taken before an epoch begins."""
    return {
        "random": seeds.states(),
        "generator": loader.generator.get_state() if loader.generator is not None else None,
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
    if loader.generator is not None and start["generator"] is not None:
        loader.generator.set_state(start["generator"])
    for name, part in _counting(loader):
        part.set_epoch(start["epochs"].get(name, part.epoch))
    try:
        yield
    finally:
        seeds.restore(script)


def _counting(loader: DataLoader[Any]) -> Iterator[tuple[str, Any]]:
    """Samplers that count epochs, as DistributedSampler does."""
    inner = getattr(loader.batch_sampler, "sampler", None)
    for name, part in (
        ("sampler", loader.sampler),
        ("batch_sampler", loader.batch_sampler),
        ("inner", inner),
    ):
        if hasattr(part, "set_epoch") and isinstance(getattr(part, "epoch", None), int):
            yield name, part
