"""Tokens and padding are counted where a mask or lengths show them, by name or by how they fit."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch

from hotlap.probe.batch import TokenCounter

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
Clips = namedtuple("Clips", "audio lengths noisy")


@dataclass
class NoisyClips:
    """As NeMo's denoising batches are: every sound with its lengths."""

    audio: torch.Tensor
    audio_len: torch.Tensor
    noise: torch.Tensor
    noise_len: torch.Tensor


def row(*values):
    return torch.tensor(values)


@pytest.mark.parametrize(
    ("batch", "counted"),
    [
        ({"input_ids": MASK, "attention_mask": MASK}, (4, 4)),
        ({"attention_mask": MASK.bool()}, (4, 4)),
        ({"src_key_padding_mask": MASK == 0}, (4, 4)),
        (({"input_ids": MASK, "attention_mask": MASK}, row(0, 1)), (4, 4)),
        ({"x": torch.zeros(2, 5, 7), "lengths": row(5, 2)}, (7, 3)),
        ({"x": torch.zeros(2, 80, 9), "lengths": row(9, 2)}, (11, 7)),
        ({"lengths": row(3, 1)}, (4, 2)),
        (Clips(torch.zeros(2, 9), row(9, 4), torch.zeros(2, 9)), (13, 5)),
        (NoisyClips(torch.zeros(2, 9), row(9, 4), torch.zeros(2, 3), row(3, 1)), (13, 5)),
        ({"t": torch.zeros(2, 3), "t_len": row(3, 1), "a": torch.zeros(2, 9), "a_len": row(9, 4)}, (13, 5)),
        ({"x": torch.zeros(2, 16), "x_len": row(9, 4)}, (13, 19)),
        ({"mask": MASK.bool(), "lengths": row(4, 1), "x": torch.zeros(2, 4)}, (5, 3)),
    ],
    ids=[
        "mask", "bool", "padding-is-true", "beside-labels", "lengths", "channels-first", "alone", "named-tuple",
        "nemo", "the-longer", "padded-further", "masked-for-learning",
    ],
)  # fmt: skip
def test_where_a_name_tells_it(batch, counted):
    assert TokenCounter().count(batch) == counted


@pytest.mark.parametrize(
    "batch",
    [
        {"image": torch.zeros(2, 3), "label": row(0, 1)},
        {"mask": torch.zeros(2, 3, 8, 8)},
        {"x": torch.zeros(2, 4), "max_len": row(9, 9)},
        {"x": torch.zeros(2, 4), "lengths": torch.tensor([0.5, 1.0])},
        [],
        None,
        {"lengths": torch.tensor([], dtype=torch.int64)},
    ],
    ids=["labels", "image-mask", "does-not-fit", "shares", "empty", "nothing", "no-row"],
)
def test_what_does_not_show_tokens_is_given_up(batch):
    counter = TokenCounter()
    assert {counter.count(batch) for _ in range(8)} == {None}
    assert counter.hopeless


def speech(*lengths, labels=(1, 2)):
    """Sound, lengths, text, lengths: a tuple without names."""
    return torch.zeros(len(lengths), max(lengths)), row(*lengths), torch.zeros(2, max(labels)), row(*labels)


def test_a_tuple_without_names_is_known_by_how_its_lengths_fit():
    counter = TokenCounter()
    batches = [speech(50, 20), speech(70, 10), speech(60, 60), speech(30, 5)]
    assert [counter.count(each) for each in batches] == [None, None, (120, 0), (35, 25)]


def test_labels_that_happen_to_fit_are_not_lengths():
    """Ten classes beside ten features: the tenth class is in every batch, but the features never change."""
    counter = TokenCounter()
    batches = [(torch.zeros(3, 10), row(10, first, 2)) for first in range(1, 9)]
    assert {counter.count(each) for each in batches} == {None}
    assert counter.hopeless


def test_one_batch_that_does_not_fit_is_enough():
    counter = TokenCounter()
    for batch in [speech(50, 20), (torch.zeros(2, 70), row(60, 10)), *[speech(9, 20 + n) for n in range(6)]]:
        assert counter.count(batch) is None


def test_what_was_found_is_followed_and_not_looked_for_again():
    """A batch whose other lengths are longer is still counted by the same ones."""
    counter = TokenCounter()
    clips = NoisyClips(torch.zeros(2, 9), row(9, 4), torch.zeros(2, 3), row(3, 1))
    later = NoisyClips(torch.zeros(2, 5), row(5, 4), torch.zeros(2, 8), row(8, 8))
    assert [counter.count(each) for each in (clips, later, {"another": MASK}, clips)] == [
        (13, 5),
        (9, 1),
        None,
        (13, 5),
    ]
