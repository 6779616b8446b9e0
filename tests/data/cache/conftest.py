"""Datasets of many kinds, and loaders that are built as a plan would build them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.cache.served import identical, kept_of
from hotlap.sameness.audit import Audit


class Made(Dataset):
    """Item i is what the function makes of i."""

    def __init__(self, make: Callable[[int], Any], count: int = 40) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.make(index)


@pytest.fixture
def made() -> type[Made]:
    return Made


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HOTLAP_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def unaudited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched a second time: for tests that count what is fetched."""
    monkeypatch.setattr(Audit, "due", lambda _: False)


@pytest.fixture
def require_equal() -> Callable[[Any, Any], None]:
    """Every item of the second dataset is that of the first, in types, dtypes, shapes, order of strides and bits."""

    def require(original: Any, served: Any) -> None:
        assert kept_of(served) is not None and len(served) == len(original)
        for index in range(len(original)):
            expected = original[index]
            assert identical(served[index], expected), (index, served[index], expected)
        order = [index * 7 % len(original) for index in range(len(original))]
        for index, item in zip(order, served.__getitems__(order), strict=True):
            assert identical(item, original[index]), index

    return require


@pytest.fixture
def batches() -> Callable[..., list[Any]]:
    """All batches of two epochs of a loader, under one seed."""

    def run(dataset: Any, **arguments: Any) -> list[Any]:
        torch.manual_seed(5)
        loader = DataLoader(dataset, **{"batch_size": 7, "shuffle": True, **arguments})
        return [batch for _ in range(2) for batch in loader]

    return run


@pytest.fixture
def words(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    """What hotlap said since this was last asked."""
    yield lambda: "".join(line for line in capfd.readouterr().err.splitlines(True) if "hotlap:" in line)
