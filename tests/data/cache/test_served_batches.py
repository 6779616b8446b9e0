"""Whole batches by gathers are what the loader's own collate makes of the items."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset, default_collate

from hotlap.data import CannotCacheError, materialise
from hotlap.data.cache.columns import one_thread
from hotlap.data.cache.materialise import serve_tensors
from hotlap.data.cache.served import (
    Picked,
    WholeBatch,
    at_once,
    gather_of,
    identical,
    kept_of,
    require_gather,
)

Point = namedtuple("Point", ["x", "y"])


def gathered(served: Any) -> tuple[Any, WholeBatch]:
    store = kept_of(served).store
    require_gather(store)
    return at_once(served), WholeBatch(default_collate, store)


def rich(index: int) -> dict[str, Any]:
    draw = np.random.default_rng(index)
    return {
        "tensor": torch.from_numpy(draw.normal(size=(3, 2))),
        "half": torch.full((2,), index / 3).half(),
        "channels first": torch.from_numpy(draw.integers(0, 9, (4, 5, 3), dtype=np.uint8)).permute(2, 0, 1),
        "array": draw.normal(size=(2, 2)).astype(np.float32),
        "by columns": np.asfortranarray(draw.normal(size=(3, 2))),
        "plain": (index, index / 7, index % 2 == 0, f"Nr. {index}"),
        "point": Point(np.float32(index), [torch.tensor(index), b"x" * index]),
        "text": str(index),
    }


@pytest.mark.parametrize("arguments", [{}, {"num_workers": 2}, {"drop_last": True}, {"batch_size": 1}])
def test_batches_of_many_kinds(made, batches, arguments):
    dataset = made(rich)
    served, collate = gathered(materialise(dataset))
    expected = batches(dataset, **arguments)
    assert identical(batches(served, collate_fn=collate, **arguments), expected)


@pytest.mark.parametrize(
    "make", [lambda i: torch.tensor([i]), lambda i: float(i), lambda i: "x" * i, lambda i: [i, "y"]]
)
def test_items_that_are_no_dict(made, batches, make):
    dataset = made(make)
    served, collate = gathered(materialise(dataset))
    assert identical(batches(served, collate_fn=collate), batches(dataset))


def test_windows_are_gathered_without_being_laid_out(made, batches):
    signal = torch.sin(torch.arange(600.0)).reshape(300, 2)
    dataset = made(lambda index: (signal[4 * index : 4 * index + 50].clone(), index), count=60)
    served, collate = gathered(materialise(dataset))
    assert kept_of(served).store.layout.modes == ("window", "fixed")
    assert identical(batches(served, collate_fn=collate), batches(dataset))


def test_samplers_of_the_script(made, batches):
    dataset = made(rich)
    served, collate = gathered(materialise(dataset))
    weights = torch.arange(40.0)
    for sampler in (
        lambda: torch.utils.data.WeightedRandomSampler(weights, 30),
        lambda: torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=1, seed=4),
        lambda: [np.int64(3), 2, 1, 3],
    ):
        arguments = {"shuffle": False, "batch_size": 4}
        expected = batches(dataset, sampler=sampler(), **arguments)
        assert identical(batches(served, sampler=sampler(), collate_fn=collate, **arguments), expected)


@pytest.mark.usefixtures("unaudited")
def test_no_item_is_made_one_by_one(made, batches, monkeypatch):
    served, collate = gathered(materialise(made(rich)))
    monkeypatch.setattr(type(kept_of(served).store), "items", None)
    monkeypatch.setattr(type(kept_of(served).store), "item", None)
    assert len(batches(served, collate_fn=collate)) == 12


def test_another_collate_gets_items(made):
    """Who takes the loader's dataset into a loader of his own finds a sequence of items."""
    dataset = made(rich)
    served, _ = gathered(materialise(dataset))
    picked = served.__getitems__([5, 2, 9])
    assert type(picked) is Picked and len(picked) == 3
    assert identical(default_collate(picked), default_collate([dataset[5], dataset[2], dataset[9]]))
    loader = DataLoader(served, batch_size=3, collate_fn=lambda items: [item["text"] for item in items])
    assert next(iter(loader)) == ["0", "1", "2"]
    assert identical(
        next(iter(DataLoader(Subset(served, [4, 3]), 2))), default_collate([dataset[4], dataset[3]])
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda index: torch.zeros(index + 1), "items differ in size"),
        (lambda index: {"x": None}, "none cannot be gathered"),
        (lambda index: [index, 5], "ints cannot be gathered"),
        (lambda index: np.array(["a"]), "array <U1 cannot be gathered"),
    ],
)
def test_what_cannot_be_gathered_says_so(made, make, reason):
    with pytest.raises(CannotCacheError) as refusal:
        require_gather(kept_of(materialise(made(make))).store)
    assert reason in refusal.value.what


def test_a_collate_that_was_taught_otherwise_is_noticed(made, monkeypatch):
    store = kept_of(materialise(made(lambda index: torch.tensor([index])))).store
    require_gather(store)
    table = torch.utils.data._utils.collate.default_collate_fn_map
    monkeypatch.setitem(table, torch.Tensor, lambda batch, *, collate_fn_map: torch.stack(list(batch)) + 1)
    with pytest.raises(CannotCacheError, match="is not what torch's collate makes"):
        require_gather(store)


def test_tensor_datasets_need_no_cache(batches):
    dataset = TensorDataset(torch.randn(30, 4), torch.arange(30))
    for each in (dataset, Subset(dataset, [7, 3, 3, 29, 1, 0, 12])):
        served, collate = gathered(serve_tensors(each))
        assert type(served).__name__ == type(each).__name__
        assert identical(batches(served, collate_fn=collate), batches(each))
    dataset.tensors[1].zero_()  # nothing was copied: the change is seen
    assert not served[0][1]


def test_a_dataset_that_changes_is_collated_as_it_is_now(made, batches):
    dataset = made(rich)
    served, collate = gathered(materialise(dataset))
    dataset.make = lambda index: torch.tensor([-index])
    assert identical(batches(served, collate_fn=collate), batches(dataset))


def test_one_thread_gathers():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_identical_means_bits_and_strides():
    one = {"x": torch.tensor([0.0, float("nan")])}
    assert identical(one, {"x": one["x"].clone()})
    assert not identical(one, {"x": torch.tensor([-0.0, float("nan")])})
    assert not identical(torch.zeros(2, 3), torch.zeros(3, 2).T)
    assert not identical([1], (1,)) and not identical([1, "a"], [True, "a"])
    assert gather_of is not None
