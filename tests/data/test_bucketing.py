"""Buckets: everything once, alike in length, the same on every rank."""

from __future__ import annotations

from collections import Counter, namedtuple

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from hotlap.data.bucketing import BucketBatchSampler, TokenBudgetSampler, pad_collate, padding_waste
from hotlap.errors import HotlapError


@pytest.fixture(scope="module")
def lengths():
    random = np.random.default_rng(0)
    return np.clip(random.lognormal(4.5, 0.7, 5000), 1, 3000).astype(int).tolist()


def flat(batches):
    return [index for batch in batches for index in batch]


def test_every_sequence_comes_once_and_epochs_differ(lengths):
    sampler = BucketBatchSampler(lengths, 32, seed=3)
    first, second = list(sampler), list(sampler)
    assert sorted(flat(first)) == sorted(flat(second)) == list(range(5000))
    assert first != second
    assert len(sampler) == 157 == len(first)


def test_the_same_seed_and_epoch_give_the_same_batches(lengths):
    one, two = BucketBatchSampler(lengths, 32, seed=3), BucketBatchSampler(torch.tensor(lengths), 32, seed=3)
    two.set_epoch(5)
    for _ in range(5):
        next(iter(one))
    assert list(one) == list(two)
    assert list(BucketBatchSampler(lengths, 32, seed=4)) != list(BucketBatchSampler(lengths, 32, seed=3))


def test_state_brings_back_the_coming_epoch(lengths):
    one, two = BucketBatchSampler(lengths, 32), BucketBatchSampler(lengths, 32)
    list(one)
    two.load_state_dict(one.state_dict())
    assert list(one) == list(two)


def test_padding_waste_falls_as_it_should(lengths):
    random = padding_waste(lengths, BatchSampler(RandomSampler(lengths), 32, False))
    fixed = padding_waste(lengths, [range(5000)], padded_to=3000)
    bucketed = BucketBatchSampler(lengths, 32).waste()
    budget = TokenBudgetSampler(lengths, 16_000).waste()
    assert fixed > random > 3 * bucketed
    assert bucketed < 0.12
    assert budget < 0.06
    assert padding_waste([4, 2], [[0, 1]]) == 0.25
    assert padding_waste([], []) == 0.0


def test_batches_are_shuffled_against_each_other(lengths):
    longest = [max(lengths[index] for index in batch) for batch in BucketBatchSampler(lengths, 32)]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)
    ordered = list(BucketBatchSampler(list(range(10)), 2, shuffle=False))
    assert ordered == [[9, 8], [7, 6], [5, 4], [3, 2], [1, 0]]


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_epoch(lengths, drop_last):
    parts = [
        list(BucketBatchSampler(lengths, 32, drop_last=drop_last, ranks=(rank, 3), seed=1))
        for rank in range(3)
    ]
    assert len({len(part) for part in parts}) == 1
    seen = Counter(flat(flat(parts)))
    if drop_last:
        assert set(seen.values()) == {1}
        assert {len(batch) for part in parts for batch in part} == {32}
    else:
        assert set(seen) == set(range(5000))
        assert sum(seen.values()) - 5000 <= 2 * 32  # only what fills up the last step
    apart = [
        abs(lengths[one[0]] - lengths[two[0]]) / lengths[one[0]] for one, two in zip(*parts[:2], strict=True)
    ]
    assert np.median(apart) < 0.2  # ranks have like work at the same step


def test_a_token_budget_is_kept(lengths):
    sampler = TokenBudgetSampler(lengths, 4000, most_rows=64)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(5000))
    assert all(len(batch) * max(lengths[index] for index in batch) <= 4000 for batch in batches)
    assert max(map(len, batches)) == 64
    with pytest.raises(HotlapError, match="sequence 1 has 5000 positions"):
        TokenBudgetSampler([3, 5000], 4000)


def test_bad_sizes_are_refused():
    with pytest.raises(HotlapError, match="batches of 0"):
        BucketBatchSampler([1], 0)
    with pytest.raises(HotlapError, match="rank 2 of 2"):
        BucketBatchSampler([1], 1, ranks=(2, 2))


def test_padding_goes_to_the_longest_of_the_batch():
    items = [{"ids": torch.ones(n, dtype=torch.int64), "labels": [1] * n, "n": n} for n in (2, 4)]
    batch = pad_collate(items, padding={"labels": -100})
    assert batch["ids"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert batch["labels"].tolist() == [[1, 1, -100, -100], [1, 1, 1, 1]]
    assert batch["n"].tolist() == [2, 4]


def test_padding_takes_other_structures():
    pair = namedtuple("pair", "x y")
    batch = pad_collate([pair(np.ones((1, 2), np.float32), "a"), pair(np.ones((3, 2), np.float32), "b")])
    assert batch.x.shape == (2, 3, 2) and batch.x.dtype is torch.float32
    assert batch.x[0, 1:].abs().sum() == 0
    assert list(batch.y) == ["a", "b"]
    images = pad_collate([torch.ones(3, 4, 2), torch.ones(3, 2, 4)], padding=-1)
    assert images.shape == (2, 3, 4, 4) and images[0, :, :, 2:].eq(-1).all()
    same = [(torch.ones(3), 1), (torch.zeros(3), 2)]
    assert [each.tolist() for each in pad_collate(same)] == [[[1, 1, 1], [0, 0, 0]], [1, 2]]


def test_a_data_loader_takes_them(lengths):
    rows = [torch.full((n,), n) for n in lengths[:300]]
    loader = DataLoader(rows, batch_sampler=BucketBatchSampler(lengths[:300], 8), collate_fn=pad_collate)
    seen = sorted(int(row[0]) for batch in loader for row in batch)
    assert seen == sorted(lengths[:300])
