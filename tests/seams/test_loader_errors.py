"""What fails in a worker of the plan's and not without one is mended; else the script meets its own error."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.data.loader_iter import LoaderTuning
from hotlap.data.tuning import PROCESSES, Setting, Tuner, chosen_by_user
from hotlap.plan.catalogue import some_knobs
from hotlap.seams import loader as seam
from hotlap.seams.fitter import Fitter

COUNT = 32


@pytest.fixture(params=["num-workers", "loader"])
def fitter(request: pytest.FixtureRequest) -> Iterator[Fitter]:
    settings = {"num-workers": 1} if request.param == "num-workers" else {"loader": True}
    made = Fitter(settings, some_knobs(settings))
    seam.install(made)
    yield made
    made.undo()


class Rows(Dataset[Any]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index))


class WithChildren(Rows):
    """As items that start a pool of processes: a worker may have none."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 21:
            assert not multiprocessing.current_process().daemon, "daemonic processes have no children"
        return super().__getitem__(index)


class Broken(Rows):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index in (9, 21):
            raise KeyError(f"no row {index}")
        return super().__getitem__(index)


def taken(dataset: Rows) -> list[Any]:
    loader = DataLoader(dataset, batch_size=4)
    if "_get_iterator" in vars(loader):  # it would measure first whether workers pay
        running: LoaderTuning = loader._get_iterator.args[1]  # type: ignore[attr-defined]
        running.tuner = Tuner(chosen_by_user(Setting(PROCESSES, 1, 2), running.limits, running.story))
    batches, found = iter(loader), list[Any]()
    while True:
        try:
            found.append(next(batches).tolist())
        except StopIteration:
            return found
        except KeyError as error:
            found.append((repr(error), error.__cause__, error.__context__))


def test_items_that_no_worker_can_make_are_made_in_the_training_process(
    fitter: Fitter, capsys: pytest.CaptureFixture[str]
) -> None:
    found = taken(WithChildren())
    assert [each for batch in found for each in batch] == list(range(COUNT))
    reasons = [each.reason for each in fitter.fitted if not each.acts] + [capsys.readouterr().err]
    assert any("cannot be made in a worker (AssertionError)" in reason for reason in reasons), reasons


def test_the_script_meets_its_own_error_and_goes_on_with_workers(fitter: Fitter) -> None:
    found = taken(Broken())
    fitter.undo()
    assert found == taken(Broken())
    assert ("KeyError('no row 21')", None, None) in found
