"""The knobs cache-dataset and batched-fetch at a loader that is about to be built."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, SequentialSampler, TensorDataset

from hotlap.data.cache.served import WholeBatch, identical, kept_of
from hotlap.facts import timeline as facts
from hotlap.facts.host import Host
from hotlap.facts.timeline import Stage, Timeline
from hotlap.knobs.batched_fetch import BatchedFetch
from hotlap.knobs.cache_dataset import CacheDataset
from hotlap.ports.knob import CannotActError, Numerics
from hotlap.ports.target import Loader, Seam
from hotlap.probe.taps import worker
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter


class Rows(Dataset):
    """Items cost something, and may be random."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row = torch.from_numpy(np.sin(np.arange(8.0) + index))
        return (row + self.noise * torch.rand(8) if self.noise else row), index


def target_of(dataset: Any, **arguments: Any) -> Loader:
    bound = inspect.signature(DataLoader.__init__).bind(None, dataset, **{"batch_size": 8, **arguments})
    bound.apply_defaults()
    return Loader({name: value for name, value in bound.arguments.items() if name != "self"})


def run(target: Loader) -> list[Any]:
    torch.manual_seed(3)
    return [batch for _ in range(2) for batch in DataLoader(**target.arguments)]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOTLAP_CACHE", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("keep", ["memory", "file"])
def test_the_plan_s_loader_gives_the_script_s_batches(keep):
    dataset = Rows()
    expected = run(target_of(dataset, shuffle=True))
    target = target_of(dataset, shuffle=True)
    undo = CacheDataset().apply(target, keep)
    served = target.arguments["dataset"]
    assert kept_of(served) is not None and isinstance(served, Rows)
    assert identical(run(target), expected)
    undo_batches = BatchedFetch().apply(target, True)
    assert isinstance(target.arguments["collate_fn"], WholeBatch)
    assert identical(run(target), expected)
    undo_batches()
    assert target.arguments["dataset"] is served and target.arguments["collate_fn"] is None
    undo()
    assert target.arguments["dataset"] is dataset


def test_a_framework_that_builds_the_loader_anew_finds_it_there():
    target = target_of(Rows())
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    before = dict(target.arguments)
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    assert target.arguments == before


@pytest.mark.parametrize("order", [["cache-dataset", "batched-fetch"], ["batched-fetch", "cache-dataset"]])
def test_the_order_of_a_plan_does_not_matter(order):
    values = {"cache-dataset": "memory", "batched-fetch": True}
    knobs = {"cache-dataset": CacheDataset(), "batched-fetch": BatchedFetch()}
    fitter = Fitter({key: values[key] for key in order}, knobs)
    target = target_of(Rows())
    fitter.offer(Seam.LOADER, target, "train.py:7")
    assert [(each.knob, each.acts, each.reason) for each in fitter.fitted] == [
        ("cache-dataset", True, ""),
        ("batched-fetch", True, ""),
    ]
    assert all(each.numerics is Numerics.BITWISE for each in fitter.fitted)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda: target_of(Rows(0.1)), "draws random numbers of torch"),
        (lambda: target_of(TensorDataset(torch.zeros(9))), "in memory already"),
        (
            lambda: target_of(
                Rows(), batch_size=None, sampler=BatchSampler(SequentialSampler(range(9)), 3, False)
            ),
            r"makes its batches by itself \(batch_size=None with BatchSampler\)",
        ),
    ],
)
def test_cache_dataset_refuses_with_the_reason(target, reason):
    asked = target()
    before = dict(asked.arguments)
    with pytest.raises(CannotActError, match=reason):
        CacheDataset().apply(asked, "memory")
    assert asked.arguments == before


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (lambda: target_of(Rows()), "add `cache-dataset` to the plan"),
        (lambda: target_of(Rows(), collate_fn=list), "own collate .list. needs single items"),
        (lambda: target_of(Rows(), batch_size=None), "makes its batches by itself"),
    ],
)
def test_batched_fetch_refuses_with_the_reason(target, reason):
    with pytest.raises(CannotActError, match=reason):
        BatchedFetch().apply(target(), True)


def test_batched_fetch_takes_a_tensor_dataset_as_it_is():
    dataset = TensorDataset(torch.randn(40, 3), torch.arange(40))
    expected, target = run(target_of(dataset, shuffle=True)), target_of(dataset, shuffle=True)
    BatchedFetch().apply(target, True)
    assert identical(run(target), expected)


def test_a_collate_of_the_script_gets_cached_items():
    def doubled(items: list[Any]) -> torch.Tensor:
        return 2 * torch.stack([row for row, _ in items])

    expected, target = run(target_of(Rows(), collate_fn=doubled)), target_of(Rows(), collate_fn=doubled)
    CacheDataset().apply(target, "memory")
    assert identical(run(target), expected)


def test_who_only_asks_pays_for_no_cache(capfd):
    target = target_of(Rows())
    target.asking = True
    before = dict(target.arguments)
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    assert target.arguments == before and "caching" not in capfd.readouterr().err
    random = target_of(Rows(0.1))
    random.asking = True
    with pytest.raises(CannotActError, match="draws random numbers"):
        CacheDataset().apply(random, "memory")


def test_off_changes_nothing():
    target = target_of(Rows(0.1))
    before = dict(target.arguments)
    CacheDataset().apply(target, "off")
    BatchedFetch().apply(target, False)
    assert target.arguments == before


def training(loader: DataLoader[Any]) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Parameters after two epochs with dropout, and the next random number."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        for rows, numbers in loader:
            loss = (model(rows).squeeze(1) - numbers / 50).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [each.detach() for each in model.parameters()], torch.rand(1)


def test_an_unmodified_training_at_the_real_seam_is_bit_equal():
    expected = training(DataLoader(Rows(), batch_size=8, shuffle=True))
    knobs = {"cache-dataset": CacheDataset(), "batched-fetch": BatchedFetch()}
    fitter = Fitter({"batched-fetch": True, "cache-dataset": "memory"}, knobs)
    seam.install(fitter)
    try:
        loader = DataLoader(Rows(), batch_size=8, shuffle=True)
        assert isinstance(loader.dataset, Rows) and isinstance(loader.collate_fn, WholeBatch)
        assert [(each.knob, each.acts) for each in fitter.fitted] == [
            ("cache-dataset", True),
            ("batched-fetch", True),
        ]
        assert identical(training(loader), expected)
        again = DataLoader(loader.dataset, batch_size=8, collate_fn=loader.collate_fn)  # as frameworks do
        assert again.dataset is loader.dataset
    finally:
        fitter.undo()
    assert not isinstance(DataLoader(Rows(), batch_size=8).collate_fn, WholeBatch)


def test_the_probe_counts_the_items_of_a_whole_batch():
    target = target_of(Rows())
    CacheDataset().apply(target, "memory")
    BatchedFetch().apply(target, True)
    marks: list[int] = []
    session = SimpleNamespace(append=marks.append, origin=0)
    collate = worker._ListenedCollate(target.arguments["collate_fn"], session, False)
    batch = collate(target.arguments["dataset"].__getitems__([4, 5, 6]))
    assert collate.items == 3 and batch[1].tolist() == [4, 5, 6]


def seen(
    dataset: facts.DatasetFacts, world: int = 1, iterable: bool = False, collate: str = "default_collate"
) -> Timeline:
    """Steps of 10 ms, of which 8 go to items of 0.25 ms."""
    count, ms = 20, 1_000_000
    stages = {Stage.DATA: [8 * ms] * count, Stage.FORWARD: [2 * ms] * count}
    steps = facts.Steps(
        [10 * ms * n for n in range(count)],
        [10 * ms] * count,
        stages,
        [32] * count,
        [-1] * count,
        [-1] * count,
        [1] * count,
    )
    loader = facts.LoaderFacts(
        dataset, 32, 0, None, False, False, iterable=iterable, batches=count, collate=collate
    )
    worker_row = facts.WorkerFacts(0, -1, count, 32 * count, 0.16, 0.16, 0.001, 0.0)
    return Timeline(
        0, world, 1, facts.Ending.WINDOW, steps, 0, facts.Warmup(1.0, 0, 0.0), facts.Runtime(threads=2),
        facts.ProbeCost(0.0, 0.0, 0.0, 0), loaders=(loader,), workers=(worker_row,),
    )  # fmt: skip


HOST = Host("Linux", "", 2, 2, 8 << 30, 4 << 30, None, None, "fork")
SMALL = facts.DatasetFacts("Rows", 1000, item_bytes=1000, deterministic=True)


@pytest.mark.parametrize(
    ("timeline", "settings"),
    [
        (seen(SMALL), ("memory",)),
        (seen(SMALL, world=4), ("memory", "file")),
        (seen(facts.DatasetFacts("Rows", 10**7, item_bytes=1000)), ("file",)),
        (seen(facts.DatasetFacts("Rows", None)), ("memory",)),
        (seen(SMALL, iterable=True), ()),
    ],
)
def test_settings_follow_what_was_seen(timeline, settings):
    assert CacheDataset().settings(HOST, timeline) == settings


def test_ceilings_stay_below_the_exposed_time_of_data():
    assert 0.5 < CacheDataset().ceiling(seen(SMALL), HOST) <= 0.8
    assert CacheDataset().ceiling(seen(SMALL, iterable=True), HOST) == 0.0
    assert BatchedFetch().ceiling(seen(SMALL), HOST) == pytest.approx(0.8)
    assert BatchedFetch().settings(HOST, seen(SMALL)) == (True,)
    assert BatchedFetch().settings(HOST, seen(SMALL, collate="padded")) == ()
    assert BatchedFetch().ceiling(seen(SMALL, collate="padded"), HOST) == 0.0
