"""Questions about a dataset, answered aside: nothing of the training process changes, and nothing hangs."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, Subset, get_worker_info

from hotlap.seams import loader_look


def draws(dataset: Any) -> str:
    return loader_look.seen({"dataset": dataset, "batch_size": 1}).items


def lazy(sampler: Any) -> str:
    return loader_look.seen({"dataset": Rows(), "batch_size": 1, "sampler": sampler}).sampler


class Rows(Dataset):
    def __init__(self, act: Any = None, **attributes: Any) -> None:
        self.act = act
        self.__dict__.update(attributes)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.act is not None:
            self.act()
        return torch.zeros(index + 2)


class Lazily:
    def __iter__(self) -> Iterator[int]:
        return (random.randrange(6) for _ in range(50))


class Eagerly:
    def __iter__(self) -> Iterator[int]:
        return iter([random.randrange(6) for _ in range(50)])


def test_an_item_that_hangs_or_kills_its_process_is_taken_for_one_that_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_look, "_QUICK_S", 0.3)
    began = time.monotonic()
    assert draws(Rows(act=lambda: time.sleep(60)))
    assert time.monotonic() - began < 30
    assert draws(Rows(act=lambda: os._exit(3)))
    monkeypatch.undo()
    assert not draws(Rows())


def test_without_fork_the_random_states_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_look, "_can_fork", lambda: False)
    before = torch.get_rng_state(), random.getstate()
    assert draws(Rows(act=random.random))
    assert lazy(Lazily())
    assert loader_look.lengths(Rows(act=lambda: torch.rand(1)), 0) == [2, 3, 4, 5, 6, 7]
    assert not loader_look.shards(Stream(), None), "not known, so workers are not risked"
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]


def test_samplers_that_draw_late_are_told_from_those_that_draw_at_the_start() -> None:
    assert lazy(Lazily())
    assert lazy(BatchSampler(Lazily(), 2, False))
    assert not lazy(Eagerly())
    assert not lazy(RandomSampler(Rows()))
    assert not lazy(None)


def test_lengths_are_what_the_dataset_says_or_what_its_items_have() -> None:
    def fails() -> None:
        raise OSError("no item may be read")

    stated = Rows(act=fails, lengths=[9, 8, 7, 6, 5, 4])
    assert loader_look.lengths(stated, 0) == [9, 8, 7, 6, 5, 4]
    assert loader_look.lengths(Subset(stated, [5, 0]), 0) == [4, 9]
    assert loader_look.lengths(Rows(), 3) == [2, 3, 4]
    assert loader_look.lengths(Rows(lengths=[1, 2]), 2) == [2, 3], (
        "a list of another length is about something else"
    )
    assert loader_look.lengths(Rows(act=fails), 0) is None
    assert loader_look.lengths(["text"] * 6, 0) is None


class Stream(IterableDataset):
    span = (0, 8)

    def __iter__(self) -> Iterator[int]:
        return iter(range(*self.span))


def _share(worker: int) -> None:
    info = get_worker_info()
    info.dataset.span = (worker, info.num_workers)


def test_a_stream_may_be_shared_out_by_the_scripts_worker_init_fn() -> None:
    stream = Stream()
    assert not loader_look.shards(stream, None)
    assert not loader_look.shards(stream, lambda _: None)
    assert loader_look.shards(stream, _share)
    assert stream.span == (0, 8), "that happened in another process"
