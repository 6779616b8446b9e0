"""Random transforms stay live: the same numbers are drawn in the same order as without a cache."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from hotlap.data import CannotCacheError, materialise
from hotlap.data.cache.served import identical, kept_of, require_gather


def noisy(picture: np.ndarray) -> torch.Tensor:
    """Draws from all three, as augmentations do."""
    shift = random.random() + float(np.random.rand())
    return torch.from_numpy(picture) + torch.rand(picture.shape) + shift


class Pictures(Dataset):
    """The usual way: a transform for the picture, another for its label."""

    def __init__(self, transform: Any = noisy, target_transform: Any = None) -> None:
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture, label = np.full((3, 4), index, np.float32), index % 3
        if self.transform is not None:
            picture = self.transform(picture)
        if self.target_transform is not None:
            label = self.target_transform(label)
        return picture, label


class Detections(Dataset):
    """A transform of picture and target together, whose result is unpacked; given by keyword in part."""

    def __init__(self) -> None:
        self.transforms = self.flip

    @staticmethod
    def flip(picture: Any, target: dict[str, Any]) -> tuple[Any, Any]:
        factor = torch.rand(())
        return picture * factor, {**target, "boxes": target["boxes"] * factor}

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> dict[str, Any]:
        target = {"boxes": torch.ones(2, 4) * index, "id": index}
        picture, target = self.transforms(torch.full((2, 2), float(index)), target)
        return {"picture": picture, "target": target, "index": index}


class Chained(Dataset):
    """The second transform works on what the first gives, and both are of a dataset below."""

    def __init__(self, base: Dataset) -> None:
        self.base = base
        self.augment = lambda picture, strength: torch.as_tensor(picture) * strength + torch.rand(1)

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> Any:
        picture, label = self.base[index]
        return self.augment(picture, strength=0.5 + index), label


class Polishing(Pictures):
    """Does something with the result of its transform."""

    def __getitem__(self, index: int) -> Any:
        return self.transform(np.ones(3, np.float32) * index).clamp(0, 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_script(batches, workers):
    dataset = Pictures(target_transform=lambda label: label + random.randrange(5))
    served = materialise(dataset)
    assert kept_of(served).store.layout.live

    def run(which: Any) -> list[Any]:
        random.seed(3)
        np.random.seed(4)
        return batches(which, num_workers=workers)

    expected, found = run(dataset), run(served)
    assert len(expected) == 10 and identical(found, expected)
    again = run(served)
    assert identical(again, expected)
    assert not identical(found[0], found[5])  # another epoch draws anew


@pytest.mark.parametrize(
    "dataset",
    [
        Detections(),
        Chained(Pictures()),
        Chained(Pictures(transform=None)),
        Subset(Pictures(), [4, 2, 2, 9, 17, 29]),
        ConcatDataset(
            [Pictures(), Pictures(transform=lambda picture: torch.from_numpy(picture) * torch.rand(1))]
        ),
    ],
    ids=["unpacked", "chained", "one of two", "subset", "concatenated"],
)
def test_ways_of_using_a_transform(dataset, batches):
    served = materialise(dataset)
    random.seed(3)
    np.random.seed(4)
    expected = batches(dataset)
    random.seed(3)
    np.random.seed(4)
    assert identical(batches(served), expected)


def test_a_transform_that_the_script_replaces_is_used(batches):
    dataset = Pictures()
    served = materialise(dataset)
    dataset.transform = lambda picture: torch.from_numpy(picture) - torch.rand(1)
    assert identical(batches(served), batches(dataset))
    assert not kept_of(served).dropped


def test_a_deterministic_transform_is_kept_with_the_item():
    served = materialise(Pictures(transform=lambda picture: torch.from_numpy(picture) * 2))
    assert not kept_of(served).store.layout.live


def test_a_transform_that_is_not_the_last_is_refused():
    with pytest.raises(CannotCacheError) as refusal:
        materialise(Polishing())
    assert "draws random numbers of Python, and without transform: AttributeError" in refusal.value.what
    assert "'Hole' object has no attribute 'clamp'" in refusal.value.what


def test_randomness_below_the_transform_is_refused(made):
    dataset = made(lambda index: dataset.transform(torch.rand(2)))
    dataset.transform = noisy
    with pytest.raises(
        CannotCacheError, match="without transform: fetching items draws random numbers of torch"
    ):
        materialise(dataset)


def test_live_items_are_not_gathered():
    with pytest.raises(CannotCacheError, match="stay live, so that items are made one by one"):
        require_gather(kept_of(materialise(Pictures())).store)
