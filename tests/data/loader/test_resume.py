"""An epoch that was left in the middle goes on with the next sample, in a new loader."""

from __future__ import annotations

import io
import random

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler, RandomSampler

from hotlap.data.bucketing import BucketBatchSampler
from hotlap.data.loader import Loader
from hotlap.errors import HotlapError


def through_a_file(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


def numbers(batches):
    return [batch["number"].tolist() for batch in batches]


@pytest.mark.parametrize("workers", [0, 2, "auto"])
def test_the_rest_of_the_epoch_comes(datasets, workers):
    def loader():
        return Loader(datasets["everything"](), 4, True, num_workers=workers)

    torch.manual_seed(7)
    whole, second = numbers(one := loader()), numbers(one)
    torch.manual_seed(7)
    first = loader()
    passing = iter(first)
    had = numbers(next(passing) for _ in range(5))
    state = through_a_file(first.state_dict())
    del passing

    torch.manual_seed(99)  # the script's own numbers are other ones by now, and stay so
    expected_draw = torch.rand(1)
    torch.manual_seed(99)
    resumed = loader()
    resumed.load_state_dict(state)
    assert had + numbers(resumed) == whole
    assert torch.rand(1) == expected_draw
    assert len(numbers(resumed)) == len(second)  # and then whole epochs again


def test_after_a_break_the_position_is_kept(datasets):
    loader = Loader(datasets["everything"](), 4, num_workers=2)
    for count, _ in enumerate(loader):
        if count == 3:
            break
    assert loader.state_dict()["position"] == 4
    list(loader)
    assert loader.state_dict()["position"] == 0
    fresh = Loader(datasets["everything"](), 4)
    fresh.load_state_dict(loader.state_dict())
    assert len(list(fresh)) == len(fresh)


class Whimsical(torch.utils.data.Sampler):
    """Draws while it is iterated, from generators that are not torch's."""

    def __iter__(self):
        for _ in range(30):
            yield random.randrange(50) if random.random() < 0.5 else int(np.random.randint(50))

    def __len__(self):
        return 30


def samplers(data):
    yield {"sampler": DistributedSampler(data, 2, 1), "batch_size": 4}
    yield {"batch_sampler": BucketBatchSampler(range(53), 4)}
    yield {
        "sampler": RandomSampler(data, replacement=True, generator=torch.Generator().manual_seed(3)),
        "batch_size": 3,
    }
    yield {"shuffle": True, "generator": torch.Generator().manual_seed(3), "batch_size": 5}
    yield {"sampler": Whimsical(), "batch_size": 4}


@pytest.mark.parametrize("number", range(5))
def test_samplers_of_every_kind(datasets, number):
    data = datasets["everything"]()
    torch.manual_seed(1)
    first = Loader(data, **list(samplers(data))[number], num_workers=0)
    if hasattr(first.sampler, "set_epoch"):
        first.sampler.set_epoch(6)
    list(first)  # an epoch before: what the samplers keep has moved on
    passing = iter(first)
    next(passing), next(passing)
    state, scripts_own = through_a_file(first.state_dict()), (random.getstate(), np.random.get_state())
    rest = numbers(passing)
    random.setstate(scripts_own[0])  # a script that resumes brings back its own generators
    np.random.set_state(scripts_own[1])
    resumed = Loader(data, **list(samplers(data))[number], num_workers=0)
    resumed.load_state_dict(state)
    assert numbers(resumed) == rest
    assert len(rest) >= 4


@pytest.mark.parametrize("workers", [0, 2])
def test_streams_are_read_again(datasets, same, workers):
    torch.manual_seed(2)
    first = Loader(datasets["stream"](), 4, num_workers=workers)
    passing = iter(first)
    next(passing), next(passing), next(passing)
    state = first.state_dict()
    rest = list(passing)
    resumed = Loader(datasets["stream"](), 4, num_workers=workers)
    resumed.load_state_dict(state)
    torch.manual_seed(2) if workers == 0 else None
    found = list(resumed)
    same([batch[0] for batch in rest], [batch[0] for batch in found])
    if workers:
        same(rest, found)  # workers draw what they drew


def test_persistent_workers_are_left_for_a_state(datasets):
    loader = Loader(datasets["everything"](), 4, num_workers=1, persistent_workers=True)
    whole = numbers(loader)
    passing = iter(loader)
    next(passing)
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert numbers(loader) == whole[1:]
    assert numbers(loader) == whole


def test_a_state_of_another_version_is_refused(datasets):
    with pytest.raises(HotlapError, match="schema 7"):
        Loader(datasets["everything"]()).load_state_dict({"schema": 7})
