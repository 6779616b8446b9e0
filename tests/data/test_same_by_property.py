"""Generated jobs: dataset x sampler x collate x loop, plain and under a setting that serves data.

Where a setting acts and its class at that place is bitwise, batches, parameters and random states are those of the
plain loader, to the last bit, or a breach is on record.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import Numerics
from hotlap.sameness.content import same
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter

ITEMS, EPOCHS = 24, 3
LEVEL = 0.0

PLANS: dict[str, dict[str, Any]] = {
    "cache-dataset": {"cache-dataset": "memory"},
    "batched-fetch": {"cache-dataset": "memory", "batched-fetch": True},
    "num-workers": {"num-workers": 2},
    "loader": {"loader": True},
}
CHANGES = ("list", "array", "tensor.data", "config", "global", "class", "environment")
DRAWS = {"python": random.random, "numpy": np.random.rand, "torch": lambda: torch.rand(()).item()}


@dataclass(frozen=True)
class Job:
    """What is generated. `changes` is what the loop changes, `at` the step of an epoch after which it does."""

    plan: str
    form: str = "tensor"
    batch: int = 4
    sampler: str = "shuffle"
    collate: str = "default"
    draws: str = ""
    rare: int = 1  # one item in so many draws
    changes: str = ""
    at: int = 0
    writes: bool = False  # the loop writes to its batches
    draws_first: bool = False  # the loop draws after iter(loader)
    stops: int = 99  # batches of an epoch after which the loop leaves it


class Config:
    def __init__(self) -> None:
        self.level = 0.0


class Rows(Dataset):
    shared = 0.0

    def __init__(self, job: Job) -> None:
        self.job, self.config = job, Config()
        own = np.random.default_rng(3)
        self.array = own.random((ITEMS, 3)).astype("float32")
        self.list = [float(each) for each in own.random(ITEMS)]
        self.tensor = torch.from_numpy(own.random(ITEMS).astype("float32"))

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        level = self.config.level + LEVEL + self.shared + float(os.environ.get("LEVEL_OF_ROWS", "0"))
        if self.job.draws and index % self.job.rare == self.job.rare - 1:
            level += DRAWS[self.job.draws]()
        row = torch.from_numpy(self.array[index] + self.list[index]) + self.tensor[index] + level
        forms = {"tensor": row, "tuple": (row, index % 3), "dict": {"x": row, "name": f"row {index}"}}
        return forms.get(self.job.form, row)

    def change(self) -> None:
        global LEVEL
        match self.job.changes:
            case "list":
                self.list[5] += 1.0
            case "array":
                self.array[6, 1] += 1.0
            case "tensor.data":
                self.tensor.data[7] += 1.0
            case "config":
                self.config.level += 0.5
            case "global":
                LEVEL += 0.5
            case "class":
                Rows.shared += 0.5
            case "environment":
                os.environ["LEVEL_OF_ROWS"] = str(float(os.environ.get("LEVEL_OF_ROWS", "0")) + 0.5)


class Going(Sampler[int]):
    """Goes on where it stood."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return ITEMS

    def __iter__(self) -> Iterator[int]:
        for _ in range(ITEMS):
            self.at += 5
            yield self.at % ITEMS


class Lazy(Sampler[int]):
    def __len__(self) -> int:
        return ITEMS

    def __iter__(self) -> Iterator[int]:
        return (random.randrange(ITEMS) for _ in range(ITEMS))


class Collate:
    def __init__(self, kind: str) -> None:
        self.kind, self.calls = kind, 0

    def __call__(self, items: list[Any]) -> Any:
        batch = torch.utils.data.default_collate(items)
        first = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list) else batch
        if self.kind == "draws":
            first.mul_((torch.rand(first.shape) > 0.3).float())
        elif self.kind == "counts":
            self.calls += 1
            first.add_(float(self.calls))
        return batch


@dataclass
class Trained:
    batches: list[Any] = field(default_factory=list)
    end: tuple[Any, ...] = ()


def _loader(job: Job, dataset: Rows) -> DataLoader[Any]:
    samplers = {"replacement": lambda: RandomSampler(dataset, True, 20), "state": Going, "lazy": Lazy}
    sampler = samplers[job.sampler]() if job.sampler in samplers else None
    shuffle = job.sampler == "shuffle" if sampler is None else None
    collate = None if job.collate == "default" else Collate(job.collate)
    return DataLoader(dataset, batch_size=job.batch, shuffle=shuffle, sampler=sampler, collate_fn=collate)


def _train(job: Job) -> Trained:
    global LEVEL
    LEVEL = Rows.shared = 0.0
    os.environ.pop("LEVEL_OF_ROWS", None)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    net, trained, dataset = torch.nn.Linear(3, 1), Trained(), Rows(job)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loader = _loader(job, dataset)
    for _ in range(EPOCHS):
        batches = iter(loader)
        offset = torch.rand(()) if job.draws_first else torch.zeros(())
        for number, batch in enumerate(batches):
            x = batch["x"] if isinstance(batch, dict) else batch[0] if isinstance(batch, list) else batch
            trained.batches.append((x.clone(), str(batch)))
            optimizer.zero_grad()
            (net(x + offset) - 1).pow(2).mean().backward()
            optimizer.step()
            if job.writes:
                x.zero_()
            if number == job.at:
                dataset.change()
            if number >= job.stops:
                break
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    trained.end = [each.detach().clone() for each in net.parameters()], states
    return trained


def _under_the_plan(job: Job) -> tuple[Trained, Fitter]:
    plan = PLANS[job.plan]
    fitter = Fitter(plan, some_knobs(plan))
    seam.install(fitter)
    try:
        return _train(job), fitter
    finally:
        fitter.undo()


def _require_what_is_claimed(job: Job) -> bool:
    """Returns whether the setting acted."""
    planned, fitter = _under_the_plan(job)
    acting = [each for each in fitter.fitted if each.acts]
    claimed = all(each.numerics is Numerics.BITWISE for each in acting)
    if claimed and not getattr(fitter, "breaches", ()):
        plain = _train(job)
        pairs = zip(plain.batches, planned.batches, strict=True)
        apart = [number for number, (one, two) in enumerate(pairs) if not same(one, two)]
        assert not apart, f"batches {apart} are others, and {job.plan} is called bitwise"
        assert same(plain.end, planned.end), f"parameters or random states differ under {job.plan}"
    return any(each.knob == job.plan for each in acting)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOTLAP_CACHE", raising=False)
    monkeypatch.setenv("LEVEL_OF_ROWS", "0")
    monkeypatch.chdir(tmp_path)


healthy = {
    "plan": st.sampled_from(sorted(PLANS)),
    "form": st.sampled_from(["tensor", "tuple", "dict"]),
    "batch": st.integers(1, 7),
    "sampler": st.sampled_from(["shuffle", "sequential", "replacement"]),
    "writes": st.booleans(),
    "stops": st.sampled_from([2, 99]),
}
hostile = {
    **healthy,
    "sampler": st.sampled_from(["shuffle", "sequential", "replacement", "state", "lazy"]),
    "collate": st.sampled_from(["default", "default", "draws", "counts"]),
    "draws": st.sampled_from(["", "", *DRAWS]),
    "rare": st.sampled_from([1, 3, 12]),
    "changes": st.sampled_from(["", *CHANGES]),
    "at": st.integers(0, 5),
    "draws_first": st.booleans(),
}
quickly = settings(
    max_examples=50,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quickly
@given(st.builds(Job, **healthy))
def test_a_setting_acts_on_a_healthy_job_and_trains_the_same_model(job: Job) -> None:
    acted = _require_what_is_claimed(job)
    assert acted or job.plan == "batched-fetch", f"{job.plan} refuses a job in which nothing changes"


@quickly
@given(st.builds(Job, **hostile))
@example(Job("cache-dataset", changes="list", at=5))
@example(Job("cache-dataset", changes="environment", at=5))
@example(Job("cache-dataset", draws="numpy", rare=12))
@example(Job("num-workers", draws="torch", rare=12))
@example(Job("num-workers", collate="draws"))
@example(Job("num-workers", sampler="state", stops=2))
@example(Job("num-workers", draws_first=True))
@example(Job("num-workers", changes="array", at=2))
@example(Job("loader", draws="python", rare=12))
def test_what_is_called_bitwise_is_bitwise_whatever_the_job_does(job: Job) -> None:
    _require_what_is_claimed(job)
