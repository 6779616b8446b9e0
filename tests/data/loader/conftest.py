"""Datasets that loaders are compared on, and a strict comparison."""

from __future__ import annotations

import gc
import multiprocessing
import random
from collections import namedtuple
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Pair = namedtuple("Pair", "x y")


class Everything(Dataset):
    """Items with all that torch's collate takes."""

    def __init__(self, count=53):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if not 0 <= index < self.count:
            raise IndexError(index)
        return {
            "tensor": torch.full((3, 5), float(index)) + torch.arange(5.0),
            "half": torch.full((2,), index, dtype=torch.bfloat16),
            "flag": torch.tensor(index % 2 == 0),
            "array": np.arange(4, dtype=np.int32) + index,
            "number": index,
            "share": index / 7,
            "name": f"item {index}",
            "pair": Pair(torch.tensor([index]), np.float32(index)),
            "list": [torch.zeros(0), index],
        }


class Batched(Everything):
    """Fetches a batch at once."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Drawing(Dataset):
    """Items draw from every global generator."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index, torch.rand(2), random.random(), np.random.rand()


class Stream(IterableDataset):
    """Shares its items out among workers, unevenly."""

    def __init__(self, count=37):
        self.count = count

    def __iter__(self):
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.count - 5 * first, step):
            yield torch.tensor([index, first]), torch.rand(1)


def strictly_same(one, two):
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype and one.stride() == two.stride() and torch.equal(one, two)
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype and np.array_equal(one, two)
    elif isinstance(one, dict):
        assert list(one) == list(two)
        for key in one:
            strictly_same(one[key], two[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(two)
        for left, right in zip(one, two, strict=True):
            strictly_same(left, right)
    else:
        assert one == two


@pytest.fixture
def same():
    return strictly_same


@pytest.fixture
def datasets():
    return {"everything": Everything, "batched": Batched, "drawing": Drawing, "stream": Stream}


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Every ring is closed and every worker has ended, however the test went."""
    yield
    gc.collect()
    assert not [each for each in Path("/proc/self/fd").iterdir() if "hotlap-ring" in _target(each)]
    assert not multiprocessing.active_children()


def _target(link):
    try:
        return str(link.readlink())
    except OSError:
        return ""
