"""Changes that come late in an epoch, or where nobody looks any more, are never silent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.knob import Numerics
from hotlap.sameness import breach
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter

COUNT, LAST = 48, 11  # items, and the number of the last batch

PLANS = {
    "workers added": ({"num-workers": 1}, 0),
    "workers left out": ({"num-workers": 0}, 1),
    "another loader beside workers": ({"loader": True}, 1),
}


@contextmanager
def planned(settings: dict[str, Any]) -> Iterator[Fitter]:
    fitter = Fitter(settings, some_knobs(settings))
    seam.install(fitter)
    try:
        yield fitter
    finally:
        fitter.undo()


@pytest.fixture(autouse=True)
def _in_between_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("hotlap.sameness.claim.SHARE", 1e-9)
    monkeypatch.setattr("hotlap.sameness.claim._LONGEST_S", 60.0)  # on a busy machine as well
    monkeypatch.setattr("hotlap.seams.loader_look.ENOUGH_S", 60.0)
    monkeypatch.setattr("hotlap.sameness.audit.Audit.due", lambda _: False)
    breach.found.clear()
    yield
    breach.found.clear()


class Table(Dataset[Any]):
    def __init__(self) -> None:
        self.table, self.shift = np.arange(COUNT * 100.0).reshape(COUNT, 100), 0.0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(self.table[index, :3] + self.shift)


Loop = Callable[[DataLoader[Any], Table], None]


def run(name: str, loop: Loop, **arguments: Any) -> Fitter:
    plan, workers = PLANS[name]
    with planned(plan) as fitter:
        dataset = Table()
        loop(DataLoader(dataset, batch_size=4, num_workers=workers, **arguments), dataset)
    return fitter


def change_before_the_last(loader: DataLoader[Any], dataset: Table) -> None:
    for number, _ in enumerate(loader):
        if number == LAST - 2:
            dataset.table += 1.0


def count_batches(loader: DataLoader[Any], dataset: Table) -> None:
    batches = iter(loader)
    for number in range(len(loader)):
        next(batches)
        if number == LAST - 2:
            dataset.table += 1.0


def change_after_iter(loader: DataLoader[Any], dataset: Table) -> None:
    batches = iter(loader)
    if loader.num_workers or "explain" in vars(loader):
        next(batches)
    dataset.table += 1.0
    for _ in batches:
        pass


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("loop", [change_before_the_last, count_batches, change_after_iter])
def test_what_changes_before_the_last_batch_is_declared(name: str, loop: Loop) -> None:
    run(name, loop)
    (found,) = breach.found
    assert "Table.table" in found.what


@pytest.mark.parametrize("name", PLANS)
def test_what_changes_after_the_last_batch_is_no_breach(name: str) -> None:
    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        for _ in range(2):
            for number, _ in enumerate(loader):
                if number == LAST:
                    dataset.table += 1.0

    fitter = run(name, loop)
    assert breach.found == []
    assert [(each.acts, each.numerics) for each in fitter.fitted] == [(True, Numerics.BITWISE)]


@pytest.mark.parametrize("name", PLANS)
def test_an_iterator_that_goes_early_lowers_the_class(name: str) -> None:
    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        dataset.table += 1.0
        next(batches)
        del loader, batches

    fitter = run(name, loop)
    assert breach.found == []
    assert [(each.acts, each.numerics) for each in fitter.fitted] == [(True, Numerics.AUDITED)]
    assert "Table.table" in fitter.fitted[0].reason


@pytest.mark.parametrize("name", PLANS)
def test_several_passes_at_once_are_audited(name: str) -> None:
    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        for _ in zip(loader, loader, strict=True):
            pass

    fitter = run(name, loop)
    assert [each.numerics for each in fitter.fitted] == [Numerics.AUDITED]
    assert "at once" in fitter.fitted[0].reason


def test_batches_are_made_anew_although_the_loader_is_gone() -> None:
    dataset, found = Table(), []
    with planned({"num-workers": 2}):
        for number, batch in enumerate(DataLoader(dataset, batch_size=4)):
            found.append(batch[0, 0].item())
            dataset.shift = 5.0 if number >= 4 else 0.0
    assert found == [400.0 * number + (5.0 if number > 4 else 0.0) for number in range(LAST + 1)]
    assert breach.found == []


@pytest.mark.parametrize("changes", [True, False])
def test_workers_of_the_script_that_persist_would_not_see_another_epochs_dataset(changes: bool) -> None:
    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        for _ in range(2):
            for _ in loader:
                pass
            dataset.table += float(changes)

    fitter = run("another loader beside workers", loop, persistent_workers=True)
    assert [each.knob for each in breach.found] == ["loader"] * changes
    assert changes or [each.numerics for each in fitter.fitted] == [Numerics.BITWISE]


class Looking(Sampler[int]):
    """Looks each index up when it is asked for it."""

    def __init__(self, sized: bool) -> None:
        self.order, self.sized = np.arange(COUNT * 50).reshape(COUNT, 50), sized

    def __len__(self) -> int:
        if not self.sized:
            raise TypeError("unknown")
        return COUNT

    def __iter__(self) -> Iterator[int]:
        for place in range(COUNT):
            yield int(self.order[place, 0]) // 50


@pytest.mark.parametrize("sized", [True, False])
@pytest.mark.parametrize("name", PLANS)
def test_an_order_that_changes_late_is_declared_or_not_claimed(name: str, sized: bool) -> None:
    sampler = Looking(sized)

    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        for number, _ in enumerate(loader):
            if number == LAST - 1:
                sampler.order = np.roll(sampler.order, 1, axis=0)
                sampler.order[:] += 0

    fitter = run(name, loop, sampler=sampler)
    assert not sized or [each.knob for each in breach.found] == list(PLANS[name][0])
    assert all(each.numerics is Numerics.AUDITED for each in fitter.fitted if each.acts)


class DrawsAtItsEnd(Sampler[int]):
    """As torch's RandomSampler with a generator does."""

    def __init__(self) -> None:
        self.generator = torch.Generator()

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        for place in torch.randperm(COUNT, generator=self.generator).tolist():
            yield place % COUNT
        torch.rand(1, generator=self.generator)


@pytest.mark.parametrize("name", PLANS)
def test_a_sampler_that_draws_at_its_own_end_is_no_breach(name: str) -> None:
    def loop(loader: DataLoader[Any], dataset: Table) -> None:
        for _ in range(2):
            for _ in loader:
                pass

    fitter = run(name, loop, sampler=DrawsAtItsEnd())
    assert breach.found == [] and [each.acts for each in fitter.fitted] == [True]


def test_an_order_that_is_drawn_when_it_is_first_asked_for_is_no_breach() -> None:
    with planned({"loader": True}):
        loader = DataLoader(Table(), batch_size=4, sampler=DrawsAtItsEnd())
        taken = loader._get_iterator.args[1].taken_over  # type: ignore[attr-defined]
        keys = taken.begin(loader, iter(loader.batch_sampler))
        taken.start_workers()
        assert [taken.broken(each, None, True) for each in keys] == [""] * (LAST + 1)
    assert breach.found == []
