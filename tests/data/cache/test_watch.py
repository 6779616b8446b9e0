"""A cache that would be stale ends, and is never silent about it."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.cache import served as serving
from hotlap.data.cache import watch as watching
from hotlap.data.cache.materialise import materialise
from hotlap.data.cache.messages import CannotCacheError
from hotlap.data.cache.served import kept_of
from hotlap.sameness import breach
from hotlap.sameness.audit import Pace

LEVELS = [0.0]


class Rows(Dataset[Any]):
    def __init__(self, rows: int = 64) -> None:
        self.table = np.arange(rows * 40_000, dtype=np.float32).reshape(rows, -1)
        self.small = [1.0]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(self.table[index].sum() + self.small[0] + LEVELS[0])


@pytest.fixture
def breaches(monkeypatch: pytest.MonkeyPatch) -> list[breach.Breach]:
    found: list[breach.Breach] = []
    monkeypatch.setattr(serving, "declare", found.append)
    return found


@pytest.fixture(autouse=True)
def _levels() -> Any:
    yield
    LEVELS[0] = 0.0


def trained(dataset: Any, loop: Any, epochs: int = 3) -> list[bytes]:
    seen = []
    for epoch in range(epochs):
        for number, batch in enumerate(DataLoader(dataset, 8)):
            seen.append(batch.numpy().tobytes())
            loop(epoch, number)
    return seen


@pytest.mark.parametrize("kind", ["list", "global"])
def test_a_small_change_ends_the_cache_before_the_next_batch(kind: str, breaches: Any, capsys: Any) -> None:
    def loop(dataset: Rows, epoch: int, number: int) -> None:
        (dataset.small if kind == "list" else LEVELS)[0] = epoch + 0.25 * number

    plain = Rows()
    expected = trained(plain, lambda *at: loop(plain, *at))
    LEVELS[0] = 0.0
    dataset = Rows()
    served = materialise(dataset)
    assert trained(served, lambda *at: loop(dataset, *at)) == expected
    assert not breaches
    assert "no longer served from the cache" in capsys.readouterr().err


def test_a_change_in_a_large_array_is_found_in_rotation_and_declared(breaches: Any, monkeypatch: Any) -> None:
    """A clock of its own: on a busy machine a pause between two batches would leave time for all parts at once."""
    moments = itertools.count()
    monkeypatch.setattr(watching, "Pace", lambda share: Pace(share, lambda: 1e-6 * next(moments)))
    monkeypatch.setattr(watching, "LEAST_S", 1e-6)  # a slow machine: few parts at a time
    monkeypatch.setattr(serving.Audit, "due", lambda _: False)
    dataset = Rows()
    served = materialise(dataset)
    served.__getitems__([0, 1])
    dataset.table[63, -1] += 1000.0
    for _ in range(3000):
        served.__getitems__([0, 1])
        if kept_of(served).dropped:
            break
    assert len(breaches) == 1
    assert "table" in breaches[0].what
    assert breaches[0].batches > 0
    assert served[63] == dataset[63]


def test_the_audit_finds_what_nobody_can_walk(breaches: Any, monkeypatch: Any) -> None:
    """A value inside of a C library's object that has no pickle."""
    hidden = itertools.count()

    class Hidden(Rows):
        def __getitem__(self, index: int) -> Any:
            return torch.tensor(float(index) + (100.0 if hidden.__reduce__()[1][0] else 0.0))

    monkeypatch.setattr(serving.Audit, "due", lambda _: True)
    dataset = Hidden()
    served = materialise(dataset)
    monkeypatch.setattr(kept_of(served).watch, "changed", lambda: "")
    served.__getitems__([1, 2])
    next(hidden)
    served.__getitems__([3, 4])
    assert kept_of(served).dropped
    assert served[5] == 105.0


def test_an_audit_moves_none_of_the_script_s_random_numbers(monkeypatch: Any) -> None:
    monkeypatch.setattr(serving.Audit, "due", lambda _: True)
    served = materialise(Rows())
    before = torch.get_rng_state()
    served.__getitems__([3])
    assert torch.equal(before, torch.get_rng_state())


def test_what_fetching_changes_leaves_the_rest_watched(breaches: Any) -> None:
    class Counting(Rows):
        calls = 0

        def __getitem__(self, index: int) -> Any:
            self.calls += 1
            return super().__getitem__(index)

    dataset = Counting()
    served = materialise(dataset)
    assert any("calls" in each for each in kept_of(served).watch.unknown)
    for _ in range(10):
        served.__getitems__([1, 2])
    assert not kept_of(served).dropped
    dataset.small[0] = 7.0
    served.__getitems__([1, 2])
    assert kept_of(served).dropped


class Buffer(Rows):
    """The same memory each time."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = torch.zeros(4)

    def __getitem__(self, index: int) -> Any:
        return self.buffer.fill_(index)


class Views(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.table[index]


def test_items_that_share_memory_are_refused() -> None:
    with pytest.raises(CannotCacheError, match="share memory"):
        materialise(Buffer())


@pytest.mark.parametrize(
    ("collate", "reason"),
    [
        (None, "the dataset's own memory"),
        (list, "the dataset's own memory"),
        (lambda items: np.stack([np.negative(each, out=each) for each in items]), "its collate changes"),
    ],
)
def test_a_loop_that_could_write_into_the_dataset_is_no_place_for_a_cache(collate: Any, reason: str) -> None:
    with pytest.raises(CannotCacheError, match=reason):
        materialise(Views(), collate=collate)


def test_views_are_kept_where_collate_copies_them() -> None:
    assert kept_of(materialise(Views())) is not None
    assert kept_of(materialise(Views(), collate=np.stack)) is not None


def test_waiting_for_a_core_does_not_put_off_the_next_comparison(monkeypatch: Any) -> None:
    """A neighbour takes the core while all is compared: that says nothing of how long it takes."""
    dataset = Rows(4)
    watch = watching.DatasetDependencies(dataset, False)
    compared = watch._dependencies.changed

    def slowly() -> str:
        time.sleep(0.02)
        return compared()

    monkeypatch.setattr(watch._dependencies, "changed", slowly)
    monkeypatch.setattr(watching, "own_time", lambda: 0.0)
    assert not watch.changed_at_bound()
    dataset.table[2, 20_000] += 1.0
    assert watch.changed_at_bound()
