"""Loaders are known by number, however often a script builds them anew."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from hotlap.probe import marks
from hotlap.probe.epilogue import Epilogue
from hotlap.probe.taps import loader

ROWS = TensorDataset(torch.zeros(6, 2))


@pytest.fixture(autouse=True)
def tap(session):
    loader.install(session, Epilogue(session))


@pytest.fixture
def portraits(session):
    return session.facts["loaders"]


def numbers(written):
    return [value for name, value in written() if name == str(marks.LOADER_ID)]


def build(size: int = 2, **options: object) -> DataLoader:
    return DataLoader(ROWS, batch_size=size, **options)


def test_a_wait_is_marked_with_its_loader_and_its_size(written):
    for _ in build(4):
        pass
    names = [name for name, _ in written()]
    assert names[:3] == ["+LOADER", "-LOADER", str(marks.LOADER_ID)]
    assert names.count("+DATA") == names.count("-DATA") == 3, "the last one finds that it has ended"
    assert [value for name, value in written() if name == str(marks.SAMPLES)] == [4, 2]


def test_two_loaders_have_two_numbers(written, portraits):
    first, second = build(2), build(3)
    for each in (first, second, first):
        list(each)
    assert list(dict.fromkeys(numbers(written))) == [0, 1]
    assert [portrait["batch_size"] for portrait in portraits] == [2, 3]
    assert [portrait["epochs"] for portrait in portraits] == [2, 1]


def test_a_number_is_not_given_away_while_another_loader_lives(written, portraits):
    first, second = build(2), build(3)
    list(second)
    del first
    third = build(4)
    list(third)
    assert [portrait["batch_size"] for portrait in portraits] == [2, 3, 4]
    assert list(dict.fromkeys(numbers(written))) == [1, 2]


def test_a_loader_that_is_built_anew_each_epoch_is_one_loader(written, portraits):
    kept = build(3)
    for _ in range(5):
        list(build(2))
    assert set(numbers(written)) == {1}
    assert [portrait.get("epochs", 0) for portrait in portraits] == [0, 5]
    assert kept is not None


def test_equal_loaders_that_live_at_the_same_time_are_two(portraits):
    assert len([build(2) for _ in range(3)]) == 3
    assert len(portraits) == 3


def test_its_place_is_the_line_that_built_it(portraits):
    build(2)
    assert portraits[0]["place"][0] == __file__
    assert portraits[0]["place"][1] == build.__code__.co_firstlineno + 1


def test_many_loaders_are_not_all_described(portraits):
    assert len([build(2) for _ in range(100)]) == 100
    assert len(portraits) == 64


def test_an_error_of_the_dataset_passes_and_closes_the_mark(written):
    class Broken(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            raise ValueError("a bad row")

    with pytest.raises(ValueError, match="a bad row"):
        list(DataLoader(Broken()))
    assert [name for name, _ in written() if "DATA" in name] == ["+DATA", "-DATA"]
