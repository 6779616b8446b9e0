"""Padded batches without a loop are what a loop over the samples makes."""

from __future__ import annotations

import numpy as np
import pytest

from hotlap.data import open_shards
from hotlap.data.formats import format_named
from hotlap.data.spans import Spans, padded
from hotlap.testing.formats import write_shard


def spans_of(sequences: list[np.ndarray], values: np.ndarray | None = None) -> Spans:
    sizes = [each.size for each in sequences]
    starts = np.cumsum([0, *sizes[:-1]])
    flat = np.concatenate([each.reshape(-1) for each in sequences]) if values is None else values
    lengths = np.asarray([len(each) for each in sequences])
    return Spans(flat, starts, lengths, sequences[0].shape[1:])


def by_loop(sequences: list[np.ndarray], value: float) -> np.ndarray:
    longest = max(map(len, sequences))
    batch = np.full((len(sequences), longest, *sequences[0].shape[1:]), value, sequences[0].dtype)
    for row, each in zip(batch, sequences, strict=True):
        row[: len(each)] = each
    return batch


@pytest.mark.parametrize("step", [(), (3,), (2, 3)], ids=str)
@pytest.mark.parametrize("dtype", [np.int32, np.float32, np.int8])
def test_the_batch_is_that_of_a_loop_also_at_the_end_of_the_values(step, dtype):
    random = np.random.default_rng(0)
    sequences = [(random.normal(size=(length, *step)) * 50).astype(dtype) for length in (9, 10, 7, 10, 8, 6)]
    batch, lengths = padded([(spans_of(sequences), np.arange(6))], -1)
    assert lengths.tolist() == [9, 10, 7, 10, 8, 6] and batch.dtype == dtype
    assert np.array_equal(batch, by_loop(sequences, -1))
    batch[:] = 0  # the caller's own


def test_parts_come_to_their_places():
    sequences = [np.full(length, length, np.int64) for length in (10, 9, 8, 10, 9)]
    parts = [
        (spans_of([sequences[at] for at in places]), np.asarray(places)) for places in ([3, 0], [4, 1, 2])
    ]
    batch, lengths = padded(parts, 7)
    assert lengths.tolist() == [10, 9, 8, 10, 9] and np.array_equal(batch, by_loop(sequences, 7))


def test_sequences_that_differ_much_or_in_kind_are_left_to_the_loop():
    long, short = np.zeros(100), np.zeros(10)
    assert padded([(spans_of([long, short, short]), np.arange(3))], 0) is None
    halves = [(spans_of([long]), np.array([0])), (spans_of([long.astype(np.float32)]), np.array([1]))]
    assert padded(halves, 0) is None
    steps = [(spans_of([np.zeros((9, 2))]), np.array([0])), (spans_of([np.zeros((9, 3))]), np.array([1]))]
    assert padded(steps, 0) is None


def test_nothing_in_a_batch_of_empty_sequences():
    batch, lengths = padded([(spans_of([np.zeros(0), np.zeros(0)]), np.arange(2))], 0)
    assert batch.shape == (2, 0) and lengths.tolist() == [0, 0]


@pytest.mark.parametrize("order", [[3, 1, 2], [11, 0, 5, 7], [-1, 6], list(range(12))], ids=str)
def test_shards_are_padded_as_their_samples_are(tmp_path, order):
    random = np.random.default_rng(1)
    for number in range(3):
        rows = [
            (
                f"{number}-{at}",
                {"tokens": random.integers(0, 9, 90 + at), "sets": np.ones((4, 2)) * at, "n": at},
            )
            for at in range(4)
        ]
        write_shard(format_named("flat"), tmp_path, rows, number)
    data = open_shards(tmp_path)
    quick, slow = data._at_once(order, -3), data._one_by_one(order, -3)
    assert quick.keys() == slow.keys() == {"tokens", "sets"} == data.padded(order, -3).keys()
    for name in slow:
        assert all(np.array_equal(one, two) for one, two in zip(quick[name], slow[name], strict=True))
