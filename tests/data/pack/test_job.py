"""How a source is split into shards, and mean and spread in parts."""

from __future__ import annotations

from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from hotlap.data.pack.job import SHARD_BYTES, PackRequest, joined, moments_of, plan_job, split
from hotlap.data.pack.sources import open_source


@pytest.mark.parametrize("seed", range(20))
def test_shards_are_even_and_none_is_empty(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 200))
    weights = (draw.lognormal(0, 2, count) * 1000).astype(int).tolist()
    shards = int(draw.integers(1, count + 1))
    bounds = split(weights, shards)
    assert len(bounds) == shards + 1 and bounds[0] == 0 and bounds[-1] == count
    sizes = [sum(weights[start:end]) for start, end in pairwise(bounds)]
    assert all(start < end for start, end in pairwise(bounds))
    if shards * 20 < count:
        assert max(sizes) <= sum(weights) / shards + 2 * max(weights)


def test_without_a_wish_a_shard_has_a_quarter_of_a_gibibyte():
    assert len(split([SHARD_BYTES // 10] * 35, None)) - 1 == 4
    assert split([10, 10], None) == (0, 2)


def test_a_job_is_known_by_all_that_changes_its_bytes(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((9, 2)))
    name = str(tmp_path / "x.npy")
    orders = [
        PackRequest(name, "flat"),
        PackRequest(name, "tar"),
        PackRequest(name, "flat", shards=2),
        PackRequest(name, "flat", normalise=("array",)),
        PackRequest(name, "flat", transform="builtins:dict"),
    ]
    identities = [plan_job(each, open_source(name, {})).identity for each in orders]
    assert len(set(identities)) == len(orders)
    assert plan_job(orders[0], open_source(name, {})).identity == identities[0]
    np.save(tmp_path / "x.npy", np.ones((9, 2)))
    assert plan_job(orders[0], open_source(name, {})).identity != identities[0]


def test_moments_of_parts_are_those_of_the_whole():
    draw = np.random.default_rng(1)
    parts = [draw.normal(1e6, 3, (int(draw.integers(0, 9)), 4)) for _ in range(30)]
    whole = np.concatenate(parts)
    found = reduce(joined, map(moments_of, parts))
    assert np.allclose(found.mean, whole.mean(0), rtol=1e-12) and np.allclose(
        found.std, whole.std(0), rtol=1e-6
    )
    assert found.count == len(whole)


def test_samples_of_several_widths_share_one_mean():
    draw = np.random.default_rng(2)
    parts = [draw.normal(5, 2, length) for length in (3, 3, 7, 0, 1)]
    whole = np.concatenate(parts)
    found = reduce(joined, map(moments_of, parts))
    assert np.allclose([*found.mean, *found.std], [whole.mean(), whole.std()]) and found.count == len(whole)
    assert moments_of(np.asarray(3.0)).mean == (3.0,)
