"""The loader seam: what it finds out about a dataset, what it changes, and what it takes back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import Numerics
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitted, Fitter


class Rows(Dataset):
    def __init__(self, count: int = 16) -> None:
        self.count, self.fetched, self.epoch = count, 0, 0

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> torch.Tensor:
        self.fetched += 1
        return torch.tensor([index, self.epoch])


class Noisy(Rows):
    """Draws from one of the three random numbers that scripts use, or from its own."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which, self.own = which, np.random.default_rng(0)

    def __getitem__(self, index: int) -> torch.Tensor:
        draws = {"python": random.random, "numpy": np.random.rand, "own": self.own.random}
        drawn = draws[self.which]() if self.which in draws else torch.rand(()).item()
        return torch.tensor([index, drawn])


class Stream(IterableDataset):
    def __init__(self, shares: bool) -> None:
        self.shares = shares

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info() if self.shares else None
        yield from range(8) if info is None else range(info.id, 8, info.num_workers)


class LazySampler(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return (int(torch.randint(16, ())) for _ in range(16))

    def __len__(self) -> int:
        return 16


@contextmanager
def planned(**settings: Any) -> Iterator[Fitter]:
    plan = {key.replace("_", "-"): value for key, value in settings.items()}
    fitter = Fitter(plan, some_knobs(plan))
    seam.install(fitter)
    try:
        yield fitter
    finally:
        fitter.undo()


def only(fitter: Fitter, knob: str) -> Fitted:
    (found,) = [each for each in fitter.fitted if each.knob == knob]
    return found


def states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())


@pytest.mark.parametrize("which", ["python", "numpy", "torch", "own"])
def test_a_dataset_that_draws_makes_more_workers_statistical_and_is_left_as_it_is(which: str) -> None:
    dataset, before = Noisy(which), states()
    own = dataset.own.bit_generator.state
    with planned(num_workers=1) as fitter:
        loader = DataLoader(dataset, batch_size=4)
        assert loader.num_workers == 1
    found = only(fitter, "num-workers")
    assert (found.acts, found.numerics) == (True, Numerics.STATISTICAL)
    assert found.place.startswith("test_loader.py:")
    assert states() == before and dataset.own.bit_generator.state == own


class Plain(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.epoch])


def test_a_dataset_that_does_not_draw_stays_bitwise() -> None:
    with planned(num_workers=1) as fitter:
        DataLoader(Plain(), batch_size=4)
    assert only(fitter, "num-workers").numerics is Numerics.BITWISE


def test_a_dataset_that_counts_its_calls_is_not_called_bitwise_and_is_left_as_it_is() -> None:
    dataset = Rows()
    with planned(num_workers=1) as fitter:
        DataLoader(dataset, batch_size=4)
    assert only(fitter, "num-workers").numerics is Numerics.STATISTICAL
    assert dataset.fetched == 0, "items are looked at in a process of their own"


def test_a_sampler_that_draws_while_it_is_iterated_makes_them_statistical() -> None:
    with planned(num_workers=2, prefetch_factor=4) as fitter:
        DataLoader(Rows(), batch_size=4, sampler=LazySampler())
    assert {each.numerics for each in fitter.fitted} == {Numerics.STATISTICAL}


def test_a_stream_gets_workers_only_where_it_shares_its_items_out() -> None:
    with planned(num_workers=2) as fitter:
        alone, shared = DataLoader(Stream(False)), DataLoader(Stream(True))
        assert sorted(int(item) for item in alone) == sorted(int(item) for item in shared) == list(range(8))
    assert (alone.num_workers, shared.num_workers) == (0, 2)
    refused, accepted = fitter.fitted
    assert "each worker would give every item" in refused.reason
    assert (accepted.acts, accepted.numerics) == (True, Numerics.STATISTICAL)


def test_no_workers_drops_what_only_means_something_with_them() -> None:
    with planned(num_workers=0):
        loader = DataLoader(
            Rows(), num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=9,
            multiprocessing_context="fork",
        )  # fmt: skip
        assert len(list(loader)) == 16
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (0, None, False)


def test_what_dataloader_refuses_is_built_as_the_script_has_it() -> None:
    class Strict(DataLoader):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "prefetch_factor" and value == 7:
                raise ValueError("this loader cannot load 7 ahead")
            super().__setattr__(name, value)

    with planned(prefetch_factor=7) as fitter:
        loader = Strict(Rows(), num_workers=1)
    assert loader.prefetch_factor == 2
    assert "this loader cannot load 7 ahead" in fitter.fitted[-1].reason


def test_an_argument_that_torch_does_not_know_is_the_scripts_error() -> None:
    with planned(num_workers=1), pytest.raises(TypeError, match="workers"):
        DataLoader(Rows(), workers=3)


def test_workers_that_cannot_be_started_are_taken_back_without_a_trace() -> None:
    rows = {}
    for plan in ({}, {"num_workers": 1, "persistent_workers": True}):
        torch.manual_seed(0)
        with planned(**plan) as fitter:
            torch.multiprocessing.set_start_method("spawn", force=True)
            try:
                loader = DataLoader(
                    Rows(), batch_size=4, shuffle=True, collate_fn=lambda items: torch.stack(items)
                )
                rows[len(plan)] = [batch.tolist() for batch in loader], torch.get_rng_state().tolist()
            finally:
                torch.multiprocessing.set_start_method("fork", force=True)
    assert rows[0] == rows[2]
    assert (loader.num_workers, loader.persistent_workers, loader.prefetch_factor) == (0, False, None)
    reasons = {each.knob: each.reason for each in fitter.fitted if not each.acts}
    assert set(reasons) == {"num-workers", "persistent-workers"}
    assert "could not be started" in reasons["num-workers"]


def test_workers_that_persist_notice_what_the_script_does_to_its_dataset() -> None:
    results = {}
    for plan in ({}, {"persistent_workers": True}):
        torch.manual_seed(0)
        dataset = Rows()
        with planned(**plan) as fitter:
            loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=1)
            rows, workers = [], []
            for epoch in (0, 0, 1):
                dataset.set_epoch(epoch)
                batches = iter(loader)
                workers.append(batches._workers[0].pid)
                rows += [batch.tolist() for batch in batches]
        results[len(plan)] = rows, torch.get_rng_state().tolist()
    assert results[0] == results[1], "epoch 1 reached the workers, and no random number was shifted"
    assert workers[0] == workers[1] != workers[2]
    assert "the script changes Rows.epoch between epochs" in fitter.fitted[-1].reason


def test_nothing_is_changed_in_a_worker() -> None:
    class Nested(Rows):
        def __getitem__(self, index: int) -> int:
            return DataLoader(Rows(), batch_size=2).num_workers

    with planned(num_workers=1):
        assert [int(each) for each in DataLoader(Nested(2))] == [0, 0]


def _in_function(**arguments: Any) -> DataLoader:
    def val_dataloader() -> DataLoader:
        return DataLoader(Rows(), **arguments)

    return val_dataloader()


def test_only_the_loader_that_feeds_training_gets_another_batch_size() -> None:
    with planned(batch_size=8) as fitter:
        train_loader = DataLoader(Rows(), batch_size=4)
        shuffled = DataLoader(Rows(), batch_size=4, shuffle=True)
        dropping = DataLoader(Rows(), batch_size=4, drop_last=True)
        test_loader = DataLoader(Rows(), batch_size=4, shuffle=True)
        in_order = DataLoader(Rows(), batch_size=4)
        validating = _in_function(batch_size=4, shuffle=True)
    sizes = [
        each.batch_size for each in (train_loader, shuffled, dropping, test_loader, in_order, validating)
    ]
    assert sizes == [8, 8, 8, 4, 4, 4]
    assert all(each.acts for each in fitter.fitted), "loaders that are left alone are no refusals"
    with planned(batch_size=8) as fitter:
        assert DataLoader(Rows(), batch_size=4).batch_size == 4
    assert "feeds training" in fitter.unmet()[0].reason


def test_undone_the_seam_is_gone() -> None:
    with planned(num_workers=1):
        pass
    assert DataLoader(Rows()).num_workers == 0
    assert not [
        name
        for name in vars(DataLoader)
        if "hotlap" in str(getattr(vars(DataLoader)[name], "__globals__", {}).get("__name__"))
    ]
