"""Random numbers of items: seeded as torch seeds its workers, or for each batch by its number.

In a loader with a fixed number of workers, each is seeded with `base_seed + worker id` and gets every n-th batch, as
in torch: items that draw are bit-equal to torch's. Where hotlap chooses how to run, that cannot be (who fetches a
batch is decided by measurement), so each batch is seeded by its number: what it draws depends on nothing else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.utils.data._utils.worker import _generate_state

_EPOCH_STRIDE = 0x9E3779B97F4A7C15  # far apart, so that batches of different epochs do not meet


def seed_worker(base_seed: int, worker: int) -> int:
    """As torch does at the start of a worker."""
    seed = base_seed + worker
    random.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(_generate_state(base_seed, worker))  # type: ignore[no-untyped-call]
    return seed


def seed_batch(base_seed: int, number: int) -> None:
    random.seed(base_seed + number)
    torch.default_generator.manual_seed((base_seed + number) & 0x7FFF_FFFF_FFFF_FFFF)
    np.random.seed(_generate_state(base_seed, number & 0xFFFF_FFFF))  # type: ignore[no-untyped-call]


def seed_of_epoch(base_seed: int, epoch: int) -> int:
    return (base_seed + epoch * _EPOCH_STRIDE) & 0x7FFF_FFFF_FFFF_FFFF if epoch else base_seed


def states() -> dict[str, Any]:
    """Of the generators that items and samplers may draw from."""
    return {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
    }


def restore(kept: dict[str, Any]) -> None:
    torch.set_rng_state(kept["torch"])
    random.setstate(kept["python"])
    np.random.set_state(kept["numpy"])


def differ(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return (
        not torch.equal(one["torch"], two["torch"])
        or one["python"] != two["python"]
        or one["numpy"][2:] != two["numpy"][2:]
        or bool((one["numpy"][1] != two["numpy"][1]).any())
    )


class Draws:
    """Whether items fetched inside of `apart` drew from a global generator."""

    def __init__(self) -> None:
        self.seen = False

    @contextmanager
    def apart(self, base_seed: int, number: int) -> Iterator[None]:
        """Seeded by the batch's number; the script's own generators do not notice."""
        kept = states()
        try:
            seed_batch(base_seed, number)
            seeded = states()
            yield
            self.seen = self.seen or differ(seeded, states())
        finally:
            restore(kept)
