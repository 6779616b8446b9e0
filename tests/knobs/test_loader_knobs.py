"""Each loader knob by itself: its undo, why it refuses, which settings it offers on which host."""

from __future__ import annotations

import copy
import os
import pickle
import random
import sys
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler

from hotlap.facts.host import Gpu, Host
from hotlap.facts.timeline import (
    DatasetFacts,
    Ending,
    LoaderFacts,
    ProbeCost,
    Runtime,
    Stage,
    Steps,
    Timeline,
    Warmup,
    WorkerFacts,
)
from hotlap.knobs import bucketing, max_length, non_blocking
from hotlap.plan.catalogue import some_knobs
from hotlap.ports import target as targets
from hotlap.ports.knob import CannotActError, NotMineError
from hotlap.ports.values import NotAllowedError
from hotlap.seams.loader_iterator import Setup
from hotlap.seams.patches import PatchStack

IDS = (
    "num-workers", "prefetch-factor", "persistent-workers", "pin-memory", "non-blocking", "worker-threads",
    "batch-size", "bucketing", "max-length", "trim-padding",
)  # fmt: skip
KNOBS = some_knobs(IDS)
ROWS = [torch.arange(3 + index % 5) for index in range(20)]
HOST = Host("Linux", "a cpu", 4, 4, 2**35, 2**35, 2**33, 2**33, "fork")
GPU_HOST = replace(HOST, gpus=(Gpu("a gpu", 2**34),))


def target(training: bool | None = True, **changes: Any) -> targets.Loader:
    arguments = {
        "dataset": ROWS, "batch_size": 4, "shuffle": True, "sampler": None, "batch_sampler": None,
        "num_workers": 0, "collate_fn": None, "pin_memory": False, "drop_last": False, "timeout": 0,
        "worker_init_fn": None, "multiprocessing_context": None, "generator": None, "prefetch_factor": None,
        "persistent_workers": False, "pin_memory_device": "", "in_order": True,
    }  # fmt: skip
    lengths = [len(row) for row in ROWS]
    return targets.Loader(
        arguments | changes, lengths=lambda most: lengths[: most or None], training=training
    )


@pytest.mark.parametrize(
    ("knob", "setting", "given"),
    [
        ("num-workers", 2, {}),
        ("num-workers", 0, {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 4}),
        ("prefetch-factor", 4, {"num_workers": 2}),
        ("persistent-workers", True, {"num_workers": 2}),
        ("persistent-workers", False, {"num_workers": 2, "persistent_workers": True}),
        ("pin-memory", False, {"pin_memory": True}),
        ("worker-threads", 1, {"num_workers": 2}),
        ("worker-threads", 3, {"num_workers": 2, "multiprocessing_context": "spawn"}),
        ("batch-size", 8, {}),
        ("batch-size", 8, {"batch_sampler": BatchSampler(RandomSampler(ROWS), 4, True), "batch_size": 1}),
        ("bucketing", "rows", {}),
        ("bucketing", "tokens", {}),
        ("max-length", 5, {}),
        ("trim-padding", True, {}),
    ],
)
def test_undo_leaves_the_arguments_as_they_were(knob: str, setting: Any, given: dict[str, Any]) -> None:
    loader = target(**given)
    before = copy.copy(loader.arguments)
    undo = KNOBS[knob].apply(loader, setting)
    assert loader.arguments != before or loader.after or loader.setups
    undo()
    assert loader.arguments == before
    assert not loader.after and not loader.setups


@pytest.mark.parametrize(
    ("knob", "setting", "given", "reason"),
    [
        ("prefetch-factor", 4, {}, "no workers that could load ahead"),
        ("persistent-workers", True, {}, "no workers to keep"),
        ("worker-threads", 1, {}, "no workers"),
        ("worker-threads", 2, {"num_workers": 2, "multiprocessing_context": "fork"}, "do not survive a fork"),
        ("pin-memory", True, {}, "no accelerator"),
        ("batch-size", 8, {"batch_size": None}, "makes its batches by itself"),
        ("batch-size", 21, {"drop_last": True}, "only 20 samples"),
        ("batch-size", 8, {"batch_sampler": bucketing.Buckets([0], 4, False)}, "batch sampler of its own"),
        ("bucketing", "rows", {"batch_size": None}, "makes its batches by itself"),
        ("max-length", 5, {"batch_size": None}, "makes its batches by itself"),
        ("trim-padding", True, {"batch_size": None}, "makes its batches by itself"),
    ],
)
def test_what_it_cannot_do_is_said(knob: str, setting: Any, given: dict[str, Any], reason: str) -> None:
    if knob == "pin-memory" and torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    with pytest.raises(CannotActError, match=reason):
        KNOBS[knob].apply(target(**given), setting)


def test_items_without_lengths_or_all_of_one_length_are_not_sorted_or_cut() -> None:
    bare, equal = target(), target()
    bare.lengths = lambda _: None
    equal.lengths = lambda most: [7] * (most or 20)
    for knob, setting in (("bucketing", "rows"), ("max-length", 5)):
        with pytest.raises(CannotActError, match="no length"):
            KNOBS[knob].apply(bare, setting)
    with pytest.raises(CannotActError, match=r"the same length \(7\)"):
        KNOBS["bucketing"].apply(equal, "rows")


@pytest.mark.parametrize(
    ("knob", "setting"), [("batch-size", 8), ("bucketing", "rows"), ("max-length", 5), ("trim-padding", True)]
)
@pytest.mark.parametrize("training", [False, None])
def test_loaders_that_do_not_feed_training_are_none_of_its_business(
    knob: str, setting: Any, training: bool | None
) -> None:
    with pytest.raises(NotMineError):
        KNOBS[knob].apply(target(training), setting)


@pytest.mark.parametrize("drop_last", [False, True])
def test_buckets_have_the_same_samples_with_less_padding_and_agree_between_ranks(drop_last: bool) -> None:
    rows = [torch.arange(1 + (7 * index) % 61) for index in range(205)]
    lengths = [len(row) for row in rows]
    kind = type("Buckets", (bucketing.Buckets,), {"lengths": lengths})
    ranks = []
    for rank in range(2):
        own = DistributedSampler(rows, num_replicas=2, rank=rank, shuffle=True)
        ranks.append(kind(own, 4, drop_last=drop_last))
        ranks[-1].set_epoch(3)
    batches = [list(each) for each in ranks]
    for made, each in zip(batches, ranks, strict=True):
        plain = list(BatchSampler(each.sampler, 4, drop_last))
        assert len(made) == len(each) == len(plain)
        assert sorted(chain(*made)) == sorted(chain(*plain))
        assert _padded(made, lengths) < 0.5 * _padded(plain, lengths)
    for one, other in zip(*batches, strict=True):
        assert abs(max(lengths[at] for at in one) - max(lengths[at] for at in other)) <= 8
    again = kind(ranks[0].sampler, 4, drop_last)
    again.set_epoch(3)
    assert list(again) == batches[0], "the epoch alone decides"
    assert list(again) != batches[0]


@pytest.mark.parametrize(("count", "size", "drop_last"), [(205, 4, False), (205, 8, True), (64, 8, False)])
def test_batches_of_tokens_are_as_many_and_hold_as_much(count: int, size: int, drop_last: bool) -> None:
    """Some samples are thirty times as long as most."""
    lengths = [300 if index % 17 == 0 else 10 + index % 7 for index in range(count)]
    own = RandomSampler(range(count), generator=torch.Generator().manual_seed(1))
    order = list(own)[: count - count % size] if drop_last else range(count)
    own.generator.manual_seed(1)
    kind = type("TokenBuckets", (bucketing.TokenBuckets,), {"lengths": lengths})
    batches = kind(own, size, drop_last)
    made = list(batches)
    assert len(made) == len(batches) == -(-len(order) // size)
    assert sorted(chain(*made)) == sorted(order)
    assert min(map(len, made)) >= 2
    rows = type("Buckets", (bucketing.Buckets,), {"lengths": lengths})(order, size, drop_last)
    assert _largest(made, lengths) <= 0.5 * _largest(list(rows), lengths)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
def test_batches_of_tokens_are_as_many_whatever_the_lengths(size: int) -> None:
    for seed in range(40):
        chance = random.Random(seed)
        lengths = [int(chance.lognormvariate(3, 1.5)) for _ in range(chance.randrange(1, 120))]
        kind = type("TokenBuckets", (bucketing.TokenBuckets,), {"lengths": lengths})
        batches = kind(range(len(lengths)), size, drop_last=False)
        made = list(batches)
        assert sorted(chain(*made)) == list(range(len(lengths)))
        assert len(made) == len(batches)
        assert all(made), "no batch is empty"


def test_ranks_that_accelerate_shares_batches_out_to_have_no_batches_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It passes over those that are not full; of one rank nothing is shared out."""
    monkeypatch.setitem(sys.modules, "accelerate.data_loader", sys)
    KNOBS["bucketing"].apply(target(), "tokens")
    monkeypatch.setenv("WORLD_SIZE", "2")
    KNOBS["bucketing"].apply(target(), "rows")
    with pytest.raises(CannotActError, match="Accelerate passes over"):
        KNOBS["bucketing"].apply(target(), "tokens")


def test_what_was_a_switch_is_read_as_rows() -> None:
    values = KNOBS["bucketing"].values
    assert [values.read(each) for each in (True, "true", "rows", False, "tokens")] == [
        "rows", "rows", "rows", "off", "tokens",
    ]  # fmt: skip
    with pytest.raises(NotAllowedError) as refused:
        values.read("tokn")
    assert refused.value.remedy == "did you mean 'tokens'?"


def _largest(batches: list[list[int]], lengths: list[int]) -> int:
    """Positions of a batch, padding among them."""
    return max(len(batch) * max(lengths[at] for at in batch) for batch in batches)


def _padded(batches: list[list[int]], lengths: list[int]) -> int:
    return sum(max(lengths[at] for at in batch) - lengths[at] for batch in batches for at in batch)


def test_cutting_can_be_pickled_and_answers_for_what_it_wraps() -> None:
    cutting = pickle.loads(pickle.dumps(max_length.Cutting(None, 3)))
    items = [{"input_ids": torch.arange(5), "labels": torch.arange(5), "span": torch.arange(4), "id": 7}] * 2
    batch = cutting(items)
    assert batch["input_ids"].tolist() == batch["labels"].tolist() == [[0, 1, 2]] * 2
    assert batch["span"].shape == (2, 4) and batch["id"].tolist() == [7, 7]
    assert cutting.__qualname__ == "default_collate"


class _Threads(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, _: int) -> tuple[int, str]:
        return torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]


def test_threads_are_set_in_a_spawned_worker() -> None:
    loader = target(num_workers=1, multiprocessing_context="spawn")
    KNOBS["worker-threads"].apply(loader, 3)
    setup = Setup(loader.setups, None)
    ((threads, variable),) = DataLoader(
        _Threads(), num_workers=1, multiprocessing_context="spawn", worker_init_fn=setup
    )
    assert (int(threads), variable) == (3, ("3",))


class _Pinned:
    """A tensor as seen from the wrapper; there is no GPU here."""

    device = torch.device("cpu")

    def is_pinned(self) -> bool:
        return True


class _Pageable(_Pinned):
    def is_pinned(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("tensor", "name", "args", "kwargs", "asynchronous"),
    [
        (_Pinned(), "to", ("cuda:0",), {}, True),
        (_Pinned(), "to", (torch.device("cuda"), torch.float16), {}, True),
        (_Pinned(), "to", (), {"device": "cuda"}, True),
        (_Pinned(), "cuda", (), {}, True),
        (_Pinned(), "to", (0,), {}, True),
        (_Pinned(), "to", (torch.float16,), {}, False),
        (_Pinned(), "to", ("cpu",), {}, False),
        (_Pinned(), "to", (torch.zeros(1),), {}, False),
        (_Pinned(), "to", ("cuda",), {"non_blocking": False}, False),
        (_Pinned(), "cuda", (None, False), {}, False),
        (_Pageable(), "to", ("cuda",), {}, False),
    ],
)
def test_only_copies_from_pinned_memory_become_asynchronous(
    tensor: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], asynchronous: bool
) -> None:
    asked: list[dict[str, Any]] = []
    moved = non_blocking.around(name)(lambda _self, *_, **given: asked.append(given))
    moved(tensor, *args, **dict(kwargs))
    assert (asked[0].get("non_blocking") is True) is asynchronous


def test_the_compiler_sees_through_it_and_undone_nothing_is_left() -> None:
    own, patches = torch.Tensor.to, PatchStack()
    for name in ("to", "cuda"):
        patches.wrap(torch.Tensor, name, non_blocking.around(name))
    try:
        compiled = torch.compile(lambda x: x.to(torch.float64).to("cpu") + 1, fullgraph=True, backend="eager")
        assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
    finally:
        patches.undo_all()
    assert torch.Tensor.to is own and "to" not in vars(torch.Tensor)


def test_non_blocking_says_where_there_is_nothing_to_copy_to() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(CannotActError, match="torch sees no device"):
        KNOBS["non-blocking"].apply(targets.Process(PatchStack()), True)


def timeline(step_ms: float = 40.0, data: float = 0.6, **loader: Any) -> Timeline:
    """A job that loads for `data` of its step; a tenth is transfer, every fourth step waits long."""
    count = 40
    waits = [int(step_ms * data * (2.8 if index % 4 == 0 else 0.4) * 1e6) for index in range(count)]
    rest = {Stage.TRANSFER: 0.1, Stage.FORWARD: 0.4, Stage.BACKWARD: 0.5}
    stages = {stage: [int(step_ms * (1 - data) * part * 1e6)] * count for stage, part in rest.items()}
    stages[Stage.DATA] = waits
    walls = [sum(column[index] for column in stages.values()) for index in range(count)]
    ones = [1] * count
    steps = Steps([0] * count, walls, stages, ones, [30] * count, [10] * count, ones)
    plain = LoaderFacts(
        DatasetFacts("Rows", 1000),
        64,
        0,
        None,
        False,
        False,
        epochs=3,
        batches=count,
        batch_bytes=2**16,
        startup_s=0.3,
    )
    built = replace(plain, **loader)
    busy = count * step_ms * data / 1e3
    worker = WorkerFacts(0, -1, count, count * 64, busy, busy, 0.0, 0.0)
    warmup, probe = Warmup(1.0, 0, 0.0), ProbeCost(1e-5, 0.001, 10, 1000)
    return Timeline(
        0, 1, 1, Ending.WINDOW, steps, 0, warmup, Runtime(2), probe, loaders=(built,), workers=(worker,)
    )


@pytest.mark.parametrize(
    ("knob", "host", "loader", "settings"),
    [
        ("num-workers", HOST, {}, (2, 4)),
        ("num-workers", HOST, {"iterable": True}, ()),
        ("num-workers", replace(HOST, shm_free_bytes=2**16 * 3), {}, (1,)),
        ("num-workers", replace(HOST, system="Windows"), {"num_workers": 2, "prefetch_factor": 2}, (0,)),
        ("prefetch-factor", HOST, {}, ()),
        ("prefetch-factor", HOST, {"num_workers": 2, "prefetch_factor": 4}, (8,)),
        ("prefetch-factor", replace(HOST, shm_free_bytes=2**16 * 8), {"num_workers": 2, "prefetch_factor": 2}, (4,)),
        ("persistent-workers", HOST, {"num_workers": 2}, (True,)),
        ("persistent-workers", HOST, {"num_workers": 2, "epochs": 1}, ()),
        ("persistent-workers", HOST, {}, ()),
        ("pin-memory", GPU_HOST, {}, (True,)),
        ("pin-memory", GPU_HOST, {"pin_memory": True}, ()),
        ("pin-memory", HOST, {}, ()),
        ("non-blocking", GPU_HOST, {}, (True,)),
        ("non-blocking", HOST, {}, ()),
        ("worker-threads", HOST, {"num_workers": 2, "worker_threads": 4}, (1,)),
        ("worker-threads", HOST, {"num_workers": 2, "worker_threads": 1}, ()),
        ("batch-size", HOST, {}, (128, 256)),
        ("batch-size", HOST, {"dataset": DatasetFacts("Rows", 150)}, (128,)),
        ("bucketing", HOST, {}, ("tokens", "rows")),
        ("max-length", HOST, {}, ()),
        ("trim-padding", HOST, {}, ()),
    ],
)  # fmt: skip
def test_settings_fit_the_host_and_the_job(
    knob: str, host: Host, loader: dict[str, Any], settings: tuple[Any, ...]
) -> None:
    seen = timeline(**loader)
    found = KNOBS[knob].settings(host, seen)
    # Of workers there may be more candidates, as the loader model thinks; where there must be none there is none.
    assert found == settings or (knob == "num-workers" and settings and set(settings) <= set(found))
    ceiling = KNOBS[knob].ceiling(seen, host)
    assert 0.0 <= ceiling <= 1.0
    if knob != "max-length":
        assert (ceiling > 0.0) is bool(settings), (
            "what can help has something to save, and the other way round"
        )


def test_padding_is_trimmed_where_rows_of_unlike_content_are_all_padded_to_one_length() -> None:
    seen = timeline()
    count = len(seen.steps)
    real = [20 + index % 7 for index in range(count)]

    def found(padded: list[int]) -> tuple[Any, ...]:
        steps = replace(seen.steps, tokens=real, padded=padded)
        knob, job = KNOBS["trim-padding"], replace(seen, steps=steps)
        assert (knob.ceiling(job, HOST) > 0.0) is bool(knob.settings(HOST, job))
        return knob.settings(HOST, job)

    assert found([40 - each for each in real]) == (True,)
    assert found([each // 2 for each in real]) == ()
    assert found([-1] * count) == ()


def test_a_loader_takes_what_the_knobs_leave_in_its_arguments() -> None:
    loader = target()
    for knob, setting in (("num-workers", 2), ("persistent-workers", True), ("prefetch-factor", 3)):
        KNOBS[knob].apply(loader, setting)
    built = DataLoader(**loader.arguments)
    assert (built.num_workers, built.persistent_workers, built.prefetch_factor) == (2, True, 3)
