"""How long items are, in the shapes that datasets give them."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from hotlap.probe.lengths import cut, length_of

Pair = namedtuple("Pair", "tokens label")


@dataclass
class Clip:
    sound: torch.Tensor
    mask: torch.Tensor
    name: str


@pytest.mark.parametrize(
    ("item", "length"),
    [
        (torch.zeros(5, 3), 5),
        (np.zeros(4), 4),
        ([1, 2, 3], 3),
        ((torch.zeros(6), 1), 6),
        ({"id": 3, "input_ids": [1, 2]}, 2),
        ({"text": "hello", "labels": torch.zeros(7), "input_ids": torch.zeros(2)}, 2),
        (Pair([1, 2, 3, 4], 0), 4),
        (Clip(torch.zeros(9), torch.zeros(9), "a"), 9),
        (torch.tensor(3.0), None),
        ("text", None),
        (7, None),
        ([], None),
        ({}, None),
    ],
)
def test_the_first_dimension_of_the_first_part_that_has_one(item: Any, length: int | None) -> None:
    assert length_of(item) == length


def test_cut_takes_the_parts_that_are_as_long_as_the_sequence() -> None:
    item = {"input_ids": [1, 2, 3, 4], "mask": np.ones(4), "boxes": torch.zeros(3, 4), "id": 9}
    found = cut(item, 2)
    assert found["input_ids"] == [1, 2] and found["mask"].shape == (2,)
    assert found["boxes"].shape == (3, 4) and found["id"] == 9
    assert len(item["input_ids"]) == 4, "the item itself stays"


def test_cut_keeps_the_kind_of_the_item() -> None:
    assert cut(Pair([1, 2, 3], "yes"), 2) == Pair([1, 2], "yes")
    clip = cut(Clip(torch.arange(9), torch.arange(9), "a"), 4)
    assert (len(clip.sound), len(clip.mask), clip.name) == (4, 4, "a")
    assert cut((torch.arange(5), 1), 3)[0].tolist() == [0, 1, 2]
    short = [torch.arange(2), 1]
    assert cut(short, 3) is short
    assert cut("text", 1) == "text"
