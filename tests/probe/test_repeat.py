"""Whether items are the same each time: random draws, epochs, and what cannot be known."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.data import Dataset

from hotlap.probe.repeat import describe_items


class Items(Dataset):
    def __init__(self, make, count=100):
        self.make, self.count = make, count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.make(index)


class ByEpoch(Items):
    """As speech recipes have it: workers that live on are told the epoch through memory that they share."""

    def __init__(self, every=2):
        super().__init__(self._noisy)
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self.every = every

    def set_epoch(self, epoch):
        self._epoch.fill_(epoch)

    def _noisy(self, index):
        own = random.Random(f"{int(self._epoch)}-{index}")
        return torch.full((4,), own.random() if index % self.every == 1 else 0.0)


def test_items_that_are_always_the_same():
    assert describe_items(Items(lambda index: torch.full((4,), float(index)))) == {
        "item_bytes": 16,
        "deterministic": True,
        "draws_random": False,
    }


@pytest.mark.parametrize("make", [lambda index: torch.rand(2), lambda index: index + 0 * random.random()])
def test_items_that_draw(make):
    before = torch.get_rng_state(), random.getstate()
    found = describe_items(Items(make))
    assert (found["deterministic"], found["draws_random"]) == (False, True)
    assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()


def test_items_that_change_with_the_epoch_are_not_the_same_each_time():
    dataset = ByEpoch()
    found = describe_items(dataset)
    assert (found["deterministic"], found["draws_random"]) == (False, False)
    assert int(dataset._epoch) == 0


def test_a_dataset_that_is_told_the_epoch_for_nothing():
    assert describe_items(ByEpoch(every=1000))["deterministic"] is True


class Stubborn(ByEpoch):
    def set_epoch(self, epoch, phase):
        raise AssertionError("never reached")


def test_what_cannot_be_told_another_epoch_is_not_known():
    found = describe_items(Stubborn())
    assert "deterministic" not in found
    assert found["item_bytes"] == 16


def test_an_empty_dataset_says_nothing():
    assert describe_items(Items(float, 0)) == {}
