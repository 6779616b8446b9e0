"""What only pads is left out of each batch, and nothing else."""

from __future__ import annotations

import pickle
from collections import namedtuple
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from hotlap.knobs.trim_padding import Trimming

LENGTHS = [[3, 9, 5], [2, 4, 6], [7, 7, 8], [1, 2, 1], [20, 3, 4]]
SIZE = 20
Pair = namedtuple("Pair", "tokens label")


def rows_of(lengths: list[int]) -> torch.Tensor:
    rows = torch.zeros(len(lengths), SIZE, dtype=torch.long)
    for row, length in enumerate(lengths):
        rows[row, :length] = torch.arange(4, 4 + length)
    return rows


def plain(lengths: list[int]) -> dict[str, Any]:
    return {"tokens": rows_of(lengths), "label": torch.tensor(lengths, dtype=torch.float32)}


def masked(lengths: list[int]) -> dict[str, Any]:
    tokens = rows_of(lengths)
    mask = tokens.ne(0)
    return {
        "x": torch.randn(len(lengths), 4, SIZE),
        "attention_mask": mask.long(),
        "pairs": mask[:, None] & mask[:, :, None],
    }


def measured(lengths: list[int]) -> dict[str, Any]:
    return {
        "wave": torch.randn(len(lengths), SIZE),
        "lengths": torch.tensor(lengths),
        "name": ["a"] * len(lengths),
    }


def unnamed(lengths: list[int]) -> tuple[Any, ...]:
    return rows_of(lengths), torch.arange(len(lengths))


@pytest.mark.parametrize(("collate", "learns"), [(plain, 2), (masked, 0), (measured, 0), (unnamed, 2)])
def test_a_batch_is_as_long_as_its_longest_row(collate: Any, learns: int) -> None:
    """Where no name says what pads, some batches show it first."""
    trimming = Trimming(collate)
    for number, lengths in enumerate(LENGTHS):
        torch.manual_seed(0)
        before = collate(lengths)
        torch.manual_seed(0)
        after = pickle.loads(pickle.dumps(trimming))(lengths) if number < 1 else trimming(lengths)
        if number < 1:
            trimming(lengths)
        longest = max(lengths) if number >= learns else SIZE
        for one, other in zip(parts(before), parts(after), strict=True):
            kept = tuple(longest if size == SIZE else size for size in one.shape)
            assert other.shape == kept and other.is_contiguous()
            assert torch.equal(one[tuple(slice(size) for size in kept)], other)


def parts(batch: Any) -> list[torch.Tensor]:
    values = batch.values() if isinstance(batch, dict) else batch
    return [each for each in values if isinstance(each, torch.Tensor)]


def test_what_is_padded_to_the_longest_already_stays_as_it_is() -> None:
    def collate(lengths: list[int]) -> Pair:
        return Pair(
            pad_sequence([torch.arange(4, 4 + each) for each in lengths], batch_first=True), torch.ones(3)
        )

    trimming = Trimming(collate)
    for lengths in LENGTHS:
        batch = trimming(lengths)
        assert isinstance(batch, Pair) and batch.tokens.shape == (3, max(lengths))


def test_left_padding_stays() -> None:
    def collate(lengths: list[int]) -> dict[str, Any]:
        rows = rows_of(lengths).flip(1)
        return {"input_ids": rows, "attention_mask": rows.ne(0).long()}

    trimming = Trimming(collate)
    assert all(trimming(lengths)["input_ids"].shape == (3, SIZE) for lengths in LENGTHS)
