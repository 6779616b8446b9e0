"""Samples and tokens are read off whatever a loader hands out."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass

import pytest
import torch

from hotlap.probe import marks
from hotlap.probe.batch import BatchReader, count_tokens, follow, path_to_tensor

Pair = namedtuple("Pair", "label image")
ROWS = torch.zeros(6, 3)


@dataclass
class Record:
    name: str
    image: torch.Tensor


class Container:
    """As frameworks wrap their batches: attributes, no protocol."""

    def __init__(self, data):
        self.stack, self.data = False, data


class Slotted:
    __slots__ = ("data",)

    def __init__(self, data):
        self.data = data


def written(reader, batch):
    marked = []
    reader.read(batch, marked.append)
    return [(mark & 255, mark >> 8) for mark in marked]


def samples_of(*batches):
    reader = BatchReader(0)
    return [dict(written(reader, batch)).get(marks.SAMPLES) for batch in batches]


@pytest.mark.parametrize(
    "batch",
    [
        ROWS,
        (ROWS, torch.zeros(6)),
        [ROWS],
        {"image": ROWS, "label": torch.zeros(6)},
        {"meta": ["a", "b"], "image": ROWS},
        UserDict(image=ROWS),
        Pair("name", ROWS),
        Record("name", ROWS),
        Container([ROWS]),
        {"inputs": [Container({"deep": (ROWS,)})]},
    ],
    ids=["tensor", "tuple", "list", "dict", "strings", "mapping", "named", "data", "container", "nested"],
)
def test_the_size_is_that_of_the_first_tensor(batch):
    assert samples_of(batch) == [6]


def test_the_last_batch_of_an_epoch_is_smaller():
    assert samples_of({"image": ROWS}, {"image": ROWS[:2]}) == [6, 2]


def test_a_scalar_is_one_sample():
    assert samples_of(torch.tensor(3.0)) == [1]


def test_without_a_tensor_a_list_says_its_length():
    assert samples_of(["a", "b", "c"]) == [3]


@pytest.mark.parametrize("batch", [7, None, "text", {"names": ["a"]}, Slotted(ROWS), object])
def test_what_shows_no_size_is_not_measured(batch):
    assert samples_of(batch) == [None]


def test_a_batch_built_otherwise_than_the_first_is_looked_at_again():
    assert samples_of({"image": ROWS}, (ROWS[:4],), {"image": ROWS[:3]}) == [6, 4, 3]


def test_a_batch_that_holds_itself_is_no_endless_walk():
    batch: dict = {}
    batch["self"] = batch
    assert path_to_tensor(batch) is None


def test_reading_changes_nothing():
    class Lazy:
        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

    batch = {"lazy": Lazy(), "rows": ROWS}
    assert path_to_tensor(batch) == (("item", "rows"),)
    assert follow(batch, (("item", "rows"),)) is ROWS


# -- tokens -----------------------------------------------------------------------------------------------------------

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])


@pytest.mark.parametrize(
    ("batch", "real", "padded"),
    [
        ({"input_ids": MASK, "attention_mask": MASK}, 4, 4),
        ({"attention_mask": MASK.bool()}, 4, 4),
        ({"src_key_padding_mask": MASK == 0}, 4, 4),
        ({"x": torch.zeros(2, 5, 7), "lengths": torch.tensor([5, 2])}, 7, 3),
        ({"x": torch.zeros(2, 80, 9), "lengths": torch.tensor([9, 2])}, 11, 7),
        ({"lengths": torch.tensor([3, 1])}, 4, 2),
        (Record("n", ROWS), None, None),
        ({"mask": torch.zeros(2, 3, 8, 8)}, None, None),
        ((torch.zeros(2, 5), torch.tensor([5, 2])), None, None),
    ],
    ids=[
        "mask",
        "bool",
        "padding-is-true",
        "lengths",
        "channels-first",
        "alone",
        "none",
        "image",
        "nameless",
    ],
)
def test_tokens_where_a_mask_or_lengths_are_visible(batch, real, padded):
    assert count_tokens(batch) == (None if real is None else (real, padded))


def test_tokens_are_counted_in_every_eighth_batch():
    reader = BatchReader(3)
    counted = [
        index
        for index in range(20)
        if any(code == marks.TOKENS for code, _ in written(reader, {"attention_mask": MASK}))
    ]
    assert counted == [0, 8, 16]


def test_a_batch_says_which_loader_it_is_from_before_all_else():
    assert written(BatchReader(3), ROWS)[0] == (marks.LOADER_ID, 3)
