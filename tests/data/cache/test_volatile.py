"""What fetching an item changes of its dataset counts, however rarely it happens, and in every run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, Subset

from hotlap.data import materialise
from hotlap.data.cache.proof import samples
from hotlap.data.cache.served import kept_of
from hotlap.knobs.batched_fetch import BatchedFetch
from hotlap.knobs.cache_dataset import CacheDataset
from hotlap.ports.knob import Numerics
from hotlap.ports.target import Loader

COUNT = 400
RARE = next(row for row in range(100, COUNT) if row not in samples(COUNT))  # that no proof looks at


class Rows(Dataset[Any]):
    """One item of 400 is none of those that are looked at, and acts."""

    def __init__(self, state: Any, act: Callable[[Any], Any]) -> None:
        self.state, self.act = state, act
        self.rows = torch.arange(COUNT * 3.0).reshape(COUNT, 3)
        self.bulk = np.zeros((30000, 100))  # so that it takes a while to compare

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == RARE:
            self.act(self.state)
        return self.rows[index] * 2.0 + self.bulk[index, 0]


def add_one(state: Any) -> None:
    state += 1


ACTS: dict[str, Callable[[], Rows]] = {
    "random.Random": lambda: Rows(random.Random(1), lambda draw: draw.random()),
    "torch.Generator": lambda: Rows(torch.Generator(), lambda draw: torch.rand(1, generator=draw)),
    "numpy": lambda: Rows(np.random.default_rng(1), lambda draw: draw.random()),
    "array": lambda: Rows(np.zeros(100), add_one),
    "list": lambda: Rows([], lambda each: each.append(1)),
}


@pytest.mark.parametrize("name", ACTS)
def test_what_one_item_of_many_changes_is_not_called_proved(name: str) -> None:
    served = materialise(ACTS[name](), "memory")
    assert kept_of(served).watch.unknown == ("fetching an item changes Rows.state",)


def test_a_later_run_knows_it_from_the_file() -> None:
    for _ in range(2):
        served = materialise(Rows([], _append), "file")
        assert kept_of(served).watch.unknown == ("fetching an item changes Rows.state",)


def _append(each: list[int]) -> None:
    each.append(1)


@pytest.mark.parametrize(("act", "numerics"), [(True, Numerics.AUDITED), (False, Numerics.BITWISE)])
def test_batches_as_a_whole_are_of_the_class_of_their_items(act: bool, numerics: Numerics) -> None:
    dataset = Rows([], _append if act else len)
    target = Loader({"dataset": dataset, "batch_size": 4, "batch_sampler": None, "collate_fn": None})
    for knob, setting in ((CacheDataset(), "memory"), (BatchedFetch(), True)):
        knob.apply(target, setting)
        assert knob.numerics_at(target, setting) is numerics


def test_what_fetching_changes_of_a_part_s_dataset_does_not_end_the_cache() -> None:
    class Memoising(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            self.state[index] = 1
            return super().__getitem__(index)

    dataset = Memoising({}, len)
    kept = kept_of(materialise(Subset(dataset, range(50, 150)), "memory"))
    assert kept is not None
    dataset[70]  # as an audit does
    assert kept.watch.changed(at_once=True) == ""
    dataset.bulk[80, 0] = 1.0
    assert kept.watch.changed(at_once=True) == "Memoising.bulk"
