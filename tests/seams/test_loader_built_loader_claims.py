"""Workers that a plan has added give what the script's own loader would give, or it is said that they do not."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
)

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import UNCHANGED, Numerics
from hotlap.sameness import breach
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitted, Fitter

SCALE = 1.0
Loop = Callable[[DataLoader[Any], Any], list[Any]]


@contextmanager
def planned(**settings: Any) -> Iterator[Fitter]:
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    fitter = Fitter(named, some_knobs(named))
    seam.install(fitter)
    try:
        yield fitter
    finally:
        fitter.undo()


@pytest.fixture(autouse=True)
def _forget_breaches() -> Iterator[None]:
    breach.found.clear()
    yield
    breach.found.clear()


class Rows(Dataset[Any]):
    level = 0.0

    def __init__(self, count: int = 96) -> None:
        self.count, self.table, self.shift = count, np.arange(100_000.0), 0.0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.table[index], self.shift, Rows.level, SCALE])


def epochs(loader: DataLoader[Any], dataset: Any) -> list[Any]:
    """With draws between `iter(loader)` and the first batch, and between batches."""
    found = []
    for _ in range(2):
        batches = iter(loader)
        found.append(torch.rand(1).item())
        for number, batch in enumerate(batches):
            found.append((batch if torch.is_tensor(batch) else batch[0]).tolist())
            found.append((torch.rand(1).item(), random.random()))
            if number == 5:
                break
    return [*found, torch.get_rng_state().tolist(), random.getstate()]


def under(plan: dict[str, Any], make: Callable[[], tuple[Any, dict[str, Any]]], loop: Loop = epochs) -> Any:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    Rows.level, globals()["SCALE"] = 0.0, 1.0
    with planned(**plan) as fitter:
        dataset, arguments = make()
        loader = DataLoader(dataset, **{"batch_size": 4, **arguments})
        if plan.get("num_workers"):
            assert loader.num_workers == plan["num_workers"]
        return loop(loader, dataset), fitter


class Stateful(Sampler[int]):
    """Each pass begins where it was asked to by a counter, and it ends with another step."""

    def __init__(self) -> None:
        self.passes = 0

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[int]:
        self.passes += 1
        order = np.random.permutation(96)[:24] + 0 * self.passes
        return iter([int(each + self.passes) % 96 for each in order])


class CountsItsEnds(Stateful):
    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(96)[:24].tolist()
        self.passes += 1
        torch.rand(1)


HEALTHY: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "in order": lambda: (Rows(), {}),
    "shuffled": lambda: (Rows(), {"shuffle": True}),
    "with a generator": lambda: (
        Rows(),
        {"shuffle": True, "generator": torch.Generator().manual_seed(1)},
    ),
    "with replacement": lambda: (Rows(), {"sampler": RandomSampler(Rows(), replacement=True)}),
    "of a subset": lambda: (Rows(), {"sampler": SubsetRandomSampler(range(40))}),
    "weighted": lambda: (Rows(), {"sampler": WeightedRandomSampler([1.0] * 96, 96)}),
    "of tensors": lambda: (TensorDataset(torch.arange(96.0)[:, None]), {"shuffle": True}),
    "drawn up when it is asked": lambda: (Rows(), {"sampler": Stateful()}),
    "that draws at its end": lambda: (Rows(), {"sampler": CountsItsEnds()}),
    "drop last": lambda: (Rows(), {"shuffle": True, "drop_last": True, "batch_size": 5}),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize(
    ("plan", "given"),
    [
        ({"num_workers": 2}, {}),
        ({"num_workers": 2, "persistent_workers": True}, {}),
        ({"num_workers": 0}, {"num_workers": 2}),
        ({"num_workers": 1, "prefetch_factor": 4}, {"num_workers": 2}),
        ({"persistent_workers": True}, {"num_workers": 2}),
        ({"loader": True}, {}),
        ({"loader": True}, {"num_workers": 1}),
    ],
    ids=str,
)
def test_bits_and_random_numbers_are_the_same_also_with_draws_between_and_an_early_end(
    name: str, plan: dict[str, Any], given: dict[str, Any]
) -> None:
    def make() -> tuple[Any, dict[str, Any]]:
        dataset, arguments = HEALTHY[name]()
        return dataset, {**arguments, **given}

    plain, _ = under({}, make)
    planned_, fitter = under(plan, make)
    if (
        given and name == "that draws at its end"
    ):  # workers come to it before the loop: more or fewer, earlier or later
        assert Numerics.BITWISE not in {each.numerics for each in fitter.fitted} or plan.get(
            "prefetch_factor"
        )
        return
    assert plain == planned_
    assert all(each.acts and each.numerics in UNCHANGED for each in fitter.fitted)
    assert breach.found == []


def whole(loader: DataLoader[Any], dataset: Any) -> list[Any]:
    found = [batch.tolist() for _ in range(2) for batch in loader]
    return [*found, torch.get_rng_state().tolist()]


def test_what_a_sampler_does_at_its_end_comes_when_the_loop_is_there() -> None:
    make = HEALTHY["that draws at its end"]
    for plan in ({"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}, {"loader": True}):
        assert under({}, make, whole)[0] == under(plan, make, whole)[0]


class Rare(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + (random.random() if index == 70 else 0.0)


class Asks(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + float(get_worker_info() is None)


class Views(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.table[index : index + 1]


def masked(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(items) * (torch.rand(len(items), 5) > 0.3)


class Walks(Sampler[int]):
    """Keeps its position."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return 40

    def __iter__(self) -> Iterator[int]:
        for _ in range(40):
            self.at = (self.at + 1) % 96
            yield self.at


UNEQUAL: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "rare randomness": lambda: (Rare(), {}),
    "a collate function that masks": lambda: (Rows(), {"collate_fn": masked}),
    "which worker": lambda: (Asks(), {}),
    "memory of the dataset": lambda: (Views(), {"batch_size": None}),
    "a sampler that walks": lambda: (Rows(), {"sampler": Walks()}),
    "replacement from the loader's generator": lambda: (
        Rows(),
        {"sampler": RandomSampler(Rows(), replacement=True, generator=torch.Generator())},
    ),
    "out of order": lambda: (Rows(), {"in_order": False}),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_what_would_differ_is_not_called_bit_equal(name: str) -> None:
    for plan in ({"num_workers": 1}, {"loader": True}):
        with planned(**plan) as fitter:
            dataset, arguments = UNEQUAL[name]()
            DataLoader(dataset, **{"batch_size": 4, **arguments})
        (found,) = fitter.fitted
        assert not found.acts or found.numerics is Numerics.STATISTICAL, found


def test_what_cannot_all_be_looked_at_is_audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotlap.seams.loader_look.ENOUGH_S", 0.0)
    with planned(num_workers=1) as fitter:
        DataLoader(Rows(), batch_size=4)
    assert [each.numerics for each in fitter.fitted] == [Numerics.AUDITED]


def _set_global(value: float, _: Any) -> None:
    globals()["SCALE"] = value


CHANGES: dict[str, Callable[[float, Any], None]] = {
    "attribute": lambda value, dataset: setattr(dataset, "shift", value),
    "class attribute": lambda value, dataset: setattr(Rows, "level", value),
    "global": _set_global,
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(
    "plan", [{"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}], ids=str
)
def test_a_change_in_mid_epoch_is_seen_before_a_batch_that_it_concerns(
    name: str, plan: dict[str, Any]
) -> None:
    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        found = []
        for epoch in range(2):
            for number, batch in enumerate(loader):
                found.append(batch.tolist())
                if number == 7:
                    CHANGES[name](epoch + 2.0, dataset)
        return [*found, torch.get_rng_state().tolist()]

    def make() -> tuple[Any, dict[str, Any]]:
        return Rows(), {"shuffle": True}

    plain, _ = under({}, make, loop)
    found, fitter = under(plan, make, loop)
    assert plain == found and breach.found == []
    last = fitter.fitted[-1]
    assert not last.acts and "while the epoch runs" in last.reason


@pytest.mark.parametrize(
    "plan", [{"persistent_workers": True}, {"num_workers": 2, "persistent_workers": True}], ids=str
)
def test_workers_that_persist_are_renewed_after_any_change_between_epochs(plan: dict[str, Any]) -> None:
    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        found = []
        for epoch in range(5):
            found += [batch.tolist() for batch in loader]
            if epoch < 3:
                list(CHANGES.values())[epoch](7.0, dataset)
            else:
                dataset.table[50:60] = 3.0  # of 800 KB
        return [*found, torch.get_rng_state().tolist()]

    def make() -> tuple[Any, dict[str, Any]]:
        return Rows(), {"shuffle": True, "num_workers": 0 if "num_workers" in plan else 1}

    assert under({}, make, loop)[0] == under(plan, make, loop)[0]
    assert breach.found == []


class Hidden(Rows):
    """Depends on what no look aside shows."""

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + float(multiprocessing.current_process().name != "MainProcess")


def test_an_audit_finds_what_nothing_else_sees_and_the_batches_are_made_anew() -> None:
    def make() -> tuple[Any, dict[str, Any]]:
        return Hidden(), {}

    plain, _ = under({}, make, whole)
    found, fitter = under({"num_workers": 1}, make, whole)
    assert plain == found, "the first batch is audited"
    assert [each.knob for each in breach.found] == ["num-workers"]
    assert not fitter.fitted[-1].acts and "differs from what" in fitter.fitted[-1].reason


def test_a_sampler_that_reads_what_the_loop_writes_is_declared() -> None:
    class Feedback(Sampler[int]):
        def __init__(self) -> None:
            self.hardest = 0

        def __len__(self) -> int:
            return 40

        def __iter__(self) -> Iterator[int]:
            for _ in range(40):
                yield self.hardest

    sampler = Feedback()

    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        found = []
        for batch in loader:
            found.append(batch.tolist())
            sampler.hardest = (sampler.hardest + 1) % 40
        return found

    _, fitter = under({"num_workers": 1}, lambda: (Rows(), {"sampler": sampler}), loop)
    assert [each.knob for each in breach.found] == ["num-workers"]
    assert fitter.fitted[0].numerics is Numerics.AUDITED


def test_without_the_workers_of_the_script_a_change_in_mid_epoch_is_declared() -> None:
    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        found = []
        for number, batch in enumerate(loader):
            found.append(batch.tolist())
            dataset.shift = 3.0 if number == 4 else dataset.shift
        return found

    under({"num_workers": 0}, lambda: (Rows(), {"num_workers": 1}), loop)
    assert [each.knob for each in breach.found] == ["num-workers"]


def test_a_loader_that_a_framework_builds_anew_is_judged_again() -> None:
    dataset = Rows()
    with planned(num_workers=1) as fitter:
        first = DataLoader(dataset, batch_size=4, collate_fn=masked)
        again = DataLoader(
            dataset, batch_size=4, collate_fn=masked, num_workers=first.num_workers, prefetch_factor=2
        )
    assert (first.num_workers, again.num_workers) == (1, 1)
    assert {each.numerics for each in fitter.fitted} == {Numerics.STATISTICAL}
    assert isinstance(fitter.fitted[0], Fitted)


class Large(Rows):
    """Takes some milliseconds to compare."""

    def __init__(self) -> None:
        super().__init__()
        self.large = np.arange(1_000_000.0)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, self.large[index]])


@pytest.mark.parametrize("knob", ["num_workers", "loader"])
def test_the_class_is_lowered_where_comparing_takes_too_long(
    knob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hotlap.sameness.claim._LONGEST_S", 0.0)
    monkeypatch.setattr("hotlap.sameness.claim._OF_EPOCH", 0.0)
    monkeypatch.setattr(
        "hotlap.seams.loader_look.ENOUGH_S", 60.0
    )  # all items are looked at, also on a busy machine
    with planned(**{knob: 1 if knob == "num_workers" else True}) as fitter:
        loader = DataLoader(Large(), batch_size=4)
        assert [each.numerics for each in fitter.fitted] == [Numerics.BITWISE]
        if knob == "loader":
            taken = loader._get_iterator.args[1].taken_over  # type: ignore[attr-defined]
            for _ in range(2):
                taken.begin(loader, iter(loader.batch_sampler))
                taken.start_workers()
        else:
            for _ in range(2):
                next(iter(loader))
    assert [(each.numerics, each.acts) for each in fitter.fitted] == [(Numerics.AUDITED, True)]
    assert "to compare" in fitter.fitted[0].reason


def test_a_change_in_an_epoch_that_is_left_early_lowers_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotlap.sameness.claim._LONGEST_S", 1.0)  # so that nothing is compared in between

    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        for number, _ in enumerate(loader):
            dataset.large += 1.0
            if number == 3:
                break
        return []

    _, fitter = under({"num_workers": 1}, lambda: (Large(), {}), loop)
    assert breach.found or fitter.fitted[0].numerics is Numerics.AUDITED


@pytest.mark.parametrize("plan", [{"num_workers": 2}, {"num_workers": 0}, {"prefetch_factor": 8}], ids=str)
def test_a_batch_size_that_the_loop_changes_is_declared(plan: dict[str, Any]) -> None:
    own = {} if plan.get("num_workers") else {"num_workers": 1}

    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        for _ in loader:
            assert loader.batch_sampler is not None
            loader.batch_sampler.batch_size = 6  # type: ignore[attr-defined]
        return []

    under(plan, lambda: (Rows(), own), loop)
    assert [each.knob for each in breach.found] == [next(iter(plan)).replace("_", "-")]


class Marker:
    pass


MARKER = Marker()


def with_marker(items: list[Any]) -> Any:
    return torch.stack(items), MARKER


def with_attribute(items: list[Any]) -> Any:
    batch = torch.stack(items)
    batch.weight = 1.0  # type: ignore[attr-defined]
    return batch


@pytest.mark.parametrize("collate", [with_marker, with_attribute])
def test_batches_that_lose_something_between_processes_are_not_called_bit_equal(collate: Any) -> None:
    with planned(num_workers=1) as fitter:
        DataLoader(Rows(), batch_size=4, collate_fn=collate)
    assert [each.numerics for each in fitter.fitted] == [Numerics.STATISTICAL]


def halves(items: list[Any]) -> Any:
    batch = torch.stack(items)
    return batch, batch[:, :2]


def test_a_batch_that_holds_the_same_memory_twice_is_left_to_torch() -> None:
    with planned(loader=True) as fitter:
        DataLoader(Rows(), batch_size=4, collate_fn=halves)
    assert not fitter.fitted[0].acts and "twice" in fitter.fitted[0].reason


def test_a_sampler_that_is_told_the_epoch_between_epochs_is_no_breach() -> None:
    class Told(Sampler[int]):
        epoch = 0

        def __len__(self) -> int:
            return 24

        def __iter__(self) -> Iterator[int]:
            for index in range(24):
                yield (index + self.epoch) % 24

    sampler = Told()

    def loop(loader: DataLoader[Any], dataset: Any) -> list[Any]:
        found = []
        for epoch in range(3):
            sampler.epoch = epoch
            found += [batch.tolist() for batch in loader]
        return found

    def make() -> tuple[Any, dict[str, Any]]:
        return Rows(), {"sampler": sampler, "num_workers": 1, "persistent_workers": True}

    plain, _ = under({}, make, loop)
    found, _ = under({"prefetch_factor": 4}, make, loop)
    assert found == plain and not breach.found
