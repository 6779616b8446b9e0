"""Batches are those of torch's DataLoader: the same bits in the same order, with the same draws."""

from __future__ import annotations

import copy
import functools
import pickle
import random

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from hotlap.data.bucketing import BucketBatchSampler
from hotlap.data.budget import Budget
from hotlap.data.loader import Loader

pytestmark = pytest.mark.filterwarnings("ignore:.*worker processes in total", "ignore:'pin_memory' argument")


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def both(build, theirs_workers, ours_workers, epochs=2):
    """Batches of all epochs and what the script would draw after each, from torch's loader and from ours."""
    found = []
    for kind, workers in ((DataLoader, theirs_workers), (Loader, ours_workers)):
        seed_all(11)
        loader = build(kind, num_workers=workers)
        found.append([(len(loader), list(loader), torch.rand(1)) for _ in range(epochs)])
    return found


SAMPLING = {
    "in order": {"batch_size": 8},
    "shuffled": {"batch_size": 8, "shuffle": True},
    "drop last": {"batch_size": 8, "shuffle": True, "drop_last": True},
    "one by one": {"batch_size": None},
    "one by one, shuffled": {"batch_size": None, "shuffle": True},
    "pinned": {"batch_size": 16, "pin_memory": True},
}


@pytest.mark.parametrize(
    ("name", "workers"), [("everything", 0), ("everything", 2), ("everything", "auto"), ("batched", "auto")]
)
def test_sampling_is_torchs(datasets, same, name, workers):
    epochs = 1 if workers == 2 else 2
    for options in SAMPLING.values():
        build = functools.partial(_of, datasets[name](), options)
        same(*both(build, 0, workers, epochs))


def _of(data, options, kind, **more):
    return kind(data, **options, **more)


@pytest.mark.parametrize("workers", [0, 3])
def test_persistent_workers_and_given_prefetch(datasets, same, workers):
    options = {"persistent_workers": True, "prefetch_factor": 3} if workers else {}
    same(
        *both(
            lambda kind, **more: kind(datasets["everything"](), 4, True, **options, **more),
            workers,
            workers,
            3,
        )
    )


def test_samplers_and_generators(datasets, same):
    data = datasets["everything"]()

    def samplers():
        seeded = torch.Generator().manual_seed(5)
        yield {"sampler": RandomSampler(data, replacement=True, num_samples=70), "batch_size": 8}
        yield {"sampler": WeightedRandomSampler(range(1, 54), 40, generator=seeded), "batch_size": 8}
        yield {"batch_sampler": BatchSampler(RandomSampler(data, generator=seeded), 6, True)}
        yield {"shuffle": True, "generator": seeded, "batch_size": 9}
        yield {"sampler": DistributedSampler(data, 3, 1, seed=2), "batch_size": 4}
        yield {"batch_sampler": BucketBatchSampler(range(53), 8, seed=1)}

    for number in range(6):
        build = functools.partial(_nth, data, samplers, number)
        same(*both(build, 0, 2 * (number % 2)))


def _nth(data, samplers, number, kind, **more):
    return kind(data, **list(samplers())[number], **more)


def test_set_epoch_reorders(datasets, same):
    data = datasets["everything"]()
    orders = []
    for kind, workers in ((DataLoader, 0), (Loader, "auto"), (Loader, 2)):
        sampler = DistributedSampler(data, 2, 0, seed=3)
        loader = kind(data, 5, sampler=sampler, num_workers=workers)
        orders.append([])
        for epoch in (0, 4, 1):
            sampler.set_epoch(epoch)
            orders[-1].append([batch["number"].tolist() for batch in loader])
    assert orders[0] == orders[1] == orders[2]
    assert orders[0][0] != orders[0][1]


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_items_that_draw_draw_the_same_with_a_fixed_number_of_workers(datasets, same, workers):
    same(*both(lambda kind, **more: kind(datasets["drawing"](), 4, True, **more), workers, workers))


def test_where_hotlap_chooses_draws_depend_on_the_batch_alone(datasets, same):
    def batches(way, workers):
        torch.manual_seed(3)
        budget = Budget(cores=workers)
        return list(Loader(datasets["drawing"](), 4, True, worker_init_fn=way, budget=budget))

    in_process = batches(None, 2)
    same(in_process, batches(None, 2))
    same(in_process, batches(_nothing, 2))  # in worker processes
    same(in_process, batches(_nothing, 3))
    drawn = torch.cat([batch[1] for batch in in_process])
    assert len(drawn.unique()) == drawn.numel()


def _nothing(worker):
    pass


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize(
    "options", [{"batch_size": 4}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}]
)
def test_streams(datasets, same, workers, options):
    kept = {"persistent_workers": workers == 3}
    found = []
    for kind in (DataLoader, Loader):
        torch.manual_seed(11)
        loader = kind(datasets["stream"](), num_workers=workers, **options, **kept)
        found.append([(list(loader), torch.rand(1)) for _ in range(2)])
    same(*found)


def test_a_stream_is_not_given_workers_by_itself(datasets, same):
    ours = Loader(datasets["stream"](), 4)
    torch.manual_seed(1)
    left = list(DataLoader(datasets["stream"](), 4))
    torch.manual_seed(1)
    same(left, list(ours))
    assert ours.num_workers == 0
    assert "the number of workers decides which samples" in ours.explain()


def test_collate_functions(datasets, same):
    rows = [torch.arange(n) for n in range(1, 30)]

    def ragged(items):
        padded = torch.nn.utils.rnn.pad_sequence(items, batch_first=True)
        strided = torch.arange(24.0).view(2, 3, 4).permute(0, 2, 1)  # kept as it lies
        arrays = np.arange(3000).reshape(3, 1000)
        return (
            padded,
            padded[:, ::2],
            strided,
            arrays,
            padded,
            {"n": len(items)},
            torch.ones(2, 1).expand(2, 3),
        )

    torch_list = list(DataLoader(rows, 4, collate_fn=ragged))
    ours = list(Loader(rows, 4, collate_fn=ragged, num_workers=2))
    for one, two in zip(torch_list, ours, strict=True):
        same(list(one), list(two))
        assert two[0] is two[4]  # one tensor in two places stays one
    for way in ("in-process", "threads"):
        same(torch_list, list(Loader(rows, 4, collate_fn=ragged, way=way, num_workers=2)))


def test_a_tensor_dataset_is_gathered(same):
    data = TensorDataset(torch.randn(50, 3, 4), torch.arange(50), torch.randn(4, 50).t())
    for workers in (0, 2, "auto"):
        same(*both(lambda kind, **more: kind(data, 8, True, **more), 0, workers))
    part = Subset(data, list(range(10, 30)))
    same(*both(lambda kind, **more: kind(part, 8, True, **more), 0, "auto"))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_start_methods(same, method):
    data = TensorDataset(torch.randn(20, 3), torch.arange(20))

    def build(kind, num_workers):
        context = method if num_workers else None
        return kind(data, 4, True, num_workers=num_workers, multiprocessing_context=context)

    same(*both(build, 1 * (method == "fork"), 1, epochs=1))


def test_batches_outlive_their_slots(datasets, same):
    """The consumer may keep all batches, change them, and go on."""
    expected = list(DataLoader(datasets["everything"](), 2))
    kept = []
    for batch in Loader(datasets["everything"](), 2, num_workers=2):
        kept.append(batch)
        copied = batch["tensor"].clone()
        batch["tensor"].add_(1000)
        batch["tensor"].copy_(copied)
    same(expected, kept)


def test_batches_differ_a_lot_in_size(same):
    rows = [torch.randn(1 + 40_000 * (index % 7 == 3)) for index in range(60)]
    same(list(DataLoader(rows, 1)), list(Loader(rows, 1, num_workers=2)))


def test_arguments_are_checked_as_torch_checks_them(datasets):
    data = datasets["everything"]()
    for wrong in (
        {"batch_size": 4, "batch_sampler": [[1]]},
        {"shuffle": True, "sampler": [1]},
        {"timeout": -1},
    ):
        messages = []
        for kind in (DataLoader, Loader):
            with pytest.raises(ValueError) as caught:
                kind(data, **wrong)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]
    positional = Loader(data, 4, False, None, None, 2, None, False, True)
    assert (positional.num_workers, positional.drop_last) == (2, True)
    assert isinstance(positional, DataLoader)


def test_a_loader_is_copied_and_pickled(datasets, same):
    loader = Loader(TensorDataset(torch.arange(30)), 4, skip_bad=1)
    expected = list(loader)
    for other in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        same(expected, list(other))
        assert other.skip_bad == 1


def test_loops_in_loops(datasets, same):
    """Two passes over the same loader at once, and a loader inside of another's loop."""
    for workers in (2, "auto"):
        loader = Loader(datasets["everything"](12), 4, num_workers=workers)
        pairs = [(a["number"][0].item(), b["number"][0].item()) for a in loader for b in loader]
        assert pairs == [(i, j) for i in (0, 4, 8) for j in (0, 4, 8)]


class Nested(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        inner = Loader(TensorDataset(torch.arange(10) + index), 5)
        return torch.cat([batch[0] for batch in inner])


def test_a_loader_inside_of_an_item(same):
    same(list(DataLoader(Nested(), 2)), list(Loader(Nested(), 2, num_workers=2)))
