"""Copies of datasets in other epochs: what is told, what is left alone, and what cannot be copied."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from hotlap.sameness.epochs import NoOtherEpochError, in_other_epochs


class Numbered(Dataset):
    """Items are drawn by the epoch, which is kept in `cell`."""

    def __init__(self, cell, name="epoch"):
        self.name = name
        setattr(self, name, cell)

    def __len__(self):
        return 10

    def __getitem__(self, index):
        cell = getattr(self, self.name)
        return index * 100 + int(getattr(cell, "value", cell))


class Told(Numbered):
    def set_epoch(self, epoch):
        cell = getattr(self, self.name)
        if isinstance(cell, int):
            setattr(self, self.name, epoch)
        elif isinstance(cell, torch.Tensor):
            cell.fill_(epoch)
        elif isinstance(cell, np.ndarray):
            cell[...] = epoch
        else:
            cell.value = epoch


CELLS = {
    "number": lambda: 4,
    "tensor": lambda: torch.tensor(4),
    "shared-tensor": lambda: torch.tensor(4).share_memory_(),
    "array": lambda: np.array(4),
    "value": lambda: multiprocessing.Value("l", 4),
    "raw-value": lambda: multiprocessing.RawValue("l", 4),
}


@pytest.mark.parametrize("kind", [Numbered, Told])
@pytest.mark.parametrize("cell", CELLS)
def test_a_copy_is_in_the_next_epoch_and_the_dataset_is_not(kind, cell):
    dataset = kind(CELLS[cell]())
    (copy,) = in_other_epochs(dataset)
    assert type(copy) is kind
    assert (copy[1], dataset[1]) == (105, 104)


@pytest.mark.parametrize("name", ["_epoch", "current_epoch", "epoch_idx", "curEpoch"])
def test_usual_names_of_the_number(name):
    assert [each[1] for each in in_other_epochs(Numbered(4, name))] == [105]


@pytest.mark.parametrize("name", ["epochs", "max_epoch", "epoch_size", "samples_per_epoch", "epochal"])
def test_other_numbers_are_not_the_epoch(name):
    assert in_other_epochs(Numbered(4, name)) == []


def test_where_the_present_epoch_is_not_known_two_are_tried():
    assert [each[1] for each in in_other_epochs(Told(4, "turn"))] == [101, 102]


def test_datasets_below_are_told_too_each_once():
    below = Told(4)
    (copy,) = in_other_epochs(Subset(ConcatDataset([below, below, Numbered(4)]), [1, 11, 21]))
    assert [copy[index] for index in range(3)] == [105, 105, 105]
    assert copy.dataset.datasets[0] is copy.dataset.datasets[1]
    assert below.epoch == 4


class Reordered(Numbered):
    """Changes what it holds in place."""

    def __init__(self):
        super().__init__(0)
        self.order, self.weights, self.seen = list(range(10)), torch.arange(10), {}

    def set_epoch(self, epoch):
        self.epoch = epoch
        self.order.reverse()
        self.weights.mul_(2)
        self.seen[epoch] = True

    def __getitem__(self, index):
        return self.order[index] * 100 + int(self.weights[index])


def test_what_is_changed_in_place_is_changed_in_the_copy_alone():
    dataset = Reordered()
    (copy,) = in_other_epochs(dataset)
    assert (copy[1], dataset[1]) == (802, 101)
    assert (copy.seen, dataset.seen) == ({1: True}, {})


def test_the_data_themselves_are_not_copied():
    dataset = Told(0)
    dataset.rows = torch.empty((64 << 20) + 1, dtype=torch.uint8)
    dataset.names = [object()]
    (copy,) = in_other_epochs(dataset)
    assert copy.rows is dataset.rows
    assert copy.names == dataset.names and copy.names is not dataset.names


class Slotted:
    __slots__ = ()

    def __len__(self):
        return 1

    def __getitem__(self, index):
        return index


class SlottedTold(Slotted):
    __slots__ = ()

    def set_epoch(self, epoch):
        raise AssertionError("never asked")


class Asking(Numbered):
    def set_epoch(self, epoch, phase):
        raise AssertionError("never reached")


@pytest.mark.parametrize("dataset", [Slotted(), [1, 2], torch.zeros(3), Subset([1, 2], [0])])
def test_what_knows_of_no_epoch_has_no_other(dataset):
    assert in_other_epochs(dataset) == []


@pytest.mark.parametrize(
    ("dataset", "why"), [(SlottedTold(), "cannot be copied"), (Asking(0), "TypeError: .*phase")]
)
def test_what_cannot_be_told_is_said(dataset, why):
    with pytest.raises(NoOtherEpochError, match=why):
        in_other_epochs(dataset)
