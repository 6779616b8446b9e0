"""The knobs cache-dataset and batched-fetch at a loader that is about to be built."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

from hotlap.data.cache.batches import WholeBatch, identical
from hotlap.data.cache.served import kept_of
from hotlap.knobs.batched_fetch import BatchedFetch
from hotlap.knobs.cache_dataset import CacheDataset
from hotlap.ports.knob import CannotActError, Numerics
from hotlap.ports.target import Loader, Seam
from hotlap.seams.fitter import Fitter


class Rows(Dataset):
    """Items cost something, and may be random."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row = torch.from_numpy(np.sin(np.arange(8.0) + index))
        return (row + self.noise * torch.rand(8) if self.noise else row), index


def target_of(dataset: Any, **arguments: Any) -> Loader:
    bound = inspect.signature(DataLoader.__init__).bind(None, dataset, **{"batch_size": 8, **arguments})
    bound.apply_defaults()
    return Loader({name: value for name, value in bound.arguments.items() if name != "self"})


def run(target: Loader) -> list[Any]:
    torch.manual_seed(3)
    return [batch for _ in range(2) for batch in DataLoader(**target.arguments)]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOTLAP_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("keep", ["memory", "file"])
def test_the_plan_s_loader_gives_the_script_s_batches(keep):
    dataset = Rows()
    expected = run(target_of(dataset, shuffle=True))
    target = target_of(dataset, shuffle=True)
    undo = CacheDataset().apply(target, keep)
    served = target.arguments["dataset"]
    assert kept_of(served) is not None and isinstance(served, Rows)
    assert identical(run(target), expected)
    undo_batches = BatchedFetch().apply(target, True)
    assert isinstance(target.arguments["collate_fn"], WholeBatch)
    assert identical(run(target), expected)
    undo_batches()
    assert target.arguments["dataset"] is served and target.arguments["collate_fn"] is None
    undo()
    assert target.arguments["dataset"] is dataset


def test_a_framework_that_builds_the_loader_anew_finds_it_there():
    target = target_of(Rows())
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    before = dict(target.arguments)
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    assert target.arguments == before


@pytest.mark.parametrize("order", [["cache-dataset", "batched-fetch"], ["batched-fetch", "cache-dataset"]])
def test_the_order_of_a_plan_does_not_matter(order):
    values = {"cache-dataset": "memory", "batched-fetch": True}
    knobs = {"cache-dataset": CacheDataset(), "batched-fetch": BatchedFetch()}
    fitter = Fitter({key: values[key] for key in order}, knobs)
    target = target_of(Rows())
    fitter.offer(Seam.LOADER, target, "train.py:7")
    assert [(each.knob, each.acts, each.reason) for each in fitter.fitted] == [
        ("cache-dataset", True, ""),
        ("batched-fetch", True, ""),
    ]
    assert all(each.numerics is Numerics.BITWISE for each in fitter.fitted)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda: target_of(Rows(0.1)), "draws random numbers of torch"),
        (lambda: target_of(TensorDataset(torch.zeros(9))), "in memory already"),
        (
            lambda: target_of(
                Rows(), batch_size=None, sampler=BatchSampler(SequentialSampler(range(9)), 3, False)
            ),
            r"makes its batches by itself \(batch_size=None with BatchSampler\)",
        ),
    ],
)
def test_cache_dataset_refuses_with_the_reason(target, reason):
    asked = target()
    before = dict(asked.arguments)
    with pytest.raises(CannotActError, match=reason):
        CacheDataset().apply(asked, "memory")
    assert asked.arguments == before


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda: target_of(Rows()), "add `cache-dataset` to the plan"),
        (lambda: target_of(Rows(), collate_fn=list), "own collate .list. needs single items"),
        (lambda: target_of(Rows(), batch_size=None), "makes its batches by itself"),
    ],
)
def test_batched_fetch_refuses_with_the_reason(target, reason):
    with pytest.raises(CannotActError, match=reason):
        BatchedFetch().apply(target(), True)


def test_batched_fetch_takes_a_tensor_dataset_as_it_is():
    dataset = TensorDataset(torch.randn(40, 3), torch.arange(40))
    expected, target = run(target_of(dataset, shuffle=True)), target_of(dataset, shuffle=True)
    BatchedFetch().apply(target, True)
    assert identical(run(target), expected)


def test_a_collate_of_the_script_gets_cached_items():
    def doubled(items: list[Any]) -> torch.Tensor:
        return 2 * torch.stack([row for row, _ in items])

    expected, target = run(target_of(Rows(), collate_fn=doubled)), target_of(Rows(), collate_fn=doubled)
    CacheDataset().apply(target, "memory")
    assert identical(run(target), expected)


def test_who_only_asks_pays_for_no_cache(capfd):
    target = target_of(Rows())
    target.asking = True
    before = dict(target.arguments)
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    assert target.arguments == before and "caching" not in capfd.readouterr().err
    random = target_of(Rows(0.1))
    random.asking = True
    with pytest.raises(CannotActError, match="draws random numbers"):
        CacheDataset().apply(random, "memory")


def test_off_changes_nothing():
    target = target_of(Rows(0.1))
    before = dict(target.arguments)
    CacheDataset().apply(target, "off")
    BatchedFetch().apply(target, False)
    assert target.arguments == before
