"""Samples that cannot be read are left out, counted and capped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter


class Files(Dataset):
    """One file for each sample; `torch.load` fails where one is torn."""

    def __init__(self, folder: Path, torn: tuple[int, ...]) -> None:
        self.paths = [folder / f"{index}.pt" for index in range(12)]
        for index, path in enumerate(self.paths):
            torch.save(torch.tensor([index]), path)
        for index in torn:
            self.paths[index].write_bytes(self.paths[index].read_bytes()[:40])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.load(self.paths[index])


class AtOnce(Files):
    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [self[index] for index in indices]


@contextmanager
def skipping(most: int) -> Iterator[Fitter]:
    fitter = Fitter({}, {}, options={"skip_bad_samples": most})
    seam.install(fitter)
    try:
        yield fitter
    finally:
        fitter.undo()


def rows(loader: DataLoader) -> list[list[int]]:
    return [batch.flatten().tolist() for batch in loader]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Files, AtOnce])
def test_torn_samples_are_left_out_and_told(
    tmp_path: Path, kind: type[Files], workers: int, capfd: Any
) -> None:
    dataset = kind(tmp_path, torn=(1, 8, 9, 10, 11))
    with skipping(5) as fitter:
        loader = DataLoader(dataset, batch_size=4, num_workers=workers)
        found = rows(loader)
        assert rows(loader) == found, "a sample that is met again counts once"
    assert found == [[0, 2, 3], [4, 5, 6, 7]], "a batch of which nothing is left is passed over"
    assert fitter.notes["skipped_samples"] == {"count": 5, "first": [1, 8, 9, 10, 11]}
    told = capfd.readouterr().err
    assert "hotlap: sample 1 was left out (1 of at most 5)" in told
    assert "hotlap: sample 11 was left out (5 of at most 5)" in told


@pytest.mark.parametrize("workers", [0, 1])
def test_one_more_than_allowed_is_the_scripts_own_error(tmp_path: Path, workers: int) -> None:
    dataset = Files(tmp_path, torn=(1, 6))
    with skipping(1):
        batches = iter(DataLoader(dataset, batch_size=4, num_workers=workers))
        assert next(batches).flatten().tolist() == [0, 2, 3]
        with pytest.raises((RuntimeError, EOFError, OSError), match="while a sample was read"):
            next(batches)
        if workers:
            batches._shutdown_workers()


def test_off_by_default_and_without_batches_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Files(tmp_path, torn=(1,))
    fitter = Fitter({}, {})
    seam.install(fitter)
    with pytest.raises((RuntimeError, EOFError, OSError)):
        rows(DataLoader(dataset, batch_size=4))
    fitter.undo()
    monkeypatch.setenv("HOTLAP_SKIP_BAD", "1")
    fitter = Fitter({}, {})
    seam.install(fitter)
    assert rows(DataLoader(dataset, batch_size=None)) == [[0], *([index] for index in range(2, 12))]
    fitter.undo()


def test_an_error_of_collate_is_not_a_torn_sample(tmp_path: Path) -> None:
    def collate(_: Any) -> Any:
        raise KeyError("no such column")

    with skipping(5) as fitter, pytest.raises(KeyError, match="no such column"):
        rows(DataLoader(Files(tmp_path, torn=()), batch_size=4, collate_fn=collate))
    assert "skipped_samples" not in fitter.notes
