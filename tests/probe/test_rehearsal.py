"""Other numbers of workers on the script's own items, in this process, through torch's own DataLoader."""

from __future__ import annotations

import os

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from hotlap.probe import boundary
from hotlap.probe.rehearsal import RehearsalPhase, numbers_of_workers


class Rows(Dataset):
    """Each item says which process made it."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor([index, os.getpid()])


class Broken(Rows):
    """Cannot be used by workers."""

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            raise RuntimeError("a handle that does not survive a fork")
        return super().__getitem__(index)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(1000))


@pytest.fixture
def rehearse(session, feed):
    """All steps of a rehearsal; returns the batches that training got instead of real ones."""

    def run(loader: DataLoader, workers: int) -> list[torch.Tensor]:
        phase, own, got = RehearsalPhase(session, feed, workers), iter(loader), []
        feed.replays = True
        feed.gave(0, next(own), own)
        feed.step_made()
        feed.forget()  # as after the steps with free input
        phase.begin()
        for _ in range(phase.steps):
            batch = feed.again(0)
            if batch is None:
                feed.gave(0, next(own, None), own)
            else:
                got.append(batch)
            feed.step_made()
            phase.step_made()
        phase.end()
        return got

    return run


def pids(batches):
    return {int(pid) for batch in batches for pid in batch[:, 1]}


def test_the_scripts_items_are_made_by_so_many_workers(session, rehearse):
    got = rehearse(DataLoader(Rows(), batch_size=4, shuffle=True), 2)
    assert len(pids(got)) == 2 and os.getpid() not in pids(got)
    ((workers, walls),) = session.facts["rehearsals"]
    assert workers == 2 and len(walls) >= 12 and min(walls) > 0
    first_epoch = sorted(int(index) for batch in got[:3] for index in batch[:, 0])
    assert first_epoch == list(range(12))  # its sampler decides, and begins again for the next epoch


def test_no_worker_at_all_is_rehearsed_too(session, rehearse):
    got = rehearse(DataLoader(Rows(), batch_size=4, num_workers=1), 0)
    assert pids(got) == {os.getpid()}
    assert [workers for workers, _ in session.facts["rehearsals"]] == [0]


def test_items_without_batches_stay_so(rehearse):
    got = rehearse(DataLoader(Rows(), batch_size=None), 1)
    assert got[0].shape == (2,)


@pytest.mark.parametrize(
    ("loader", "workers"),
    [(DataLoader(Rows(), batch_size=4), 0), (DataLoader(Stream(), batch_size=4), 1)],
    ids=["as it is", "a stream"],
)
def test_what_cannot_or_need_not_be_tried_is_left(session, rehearse, loader, workers):
    assert rehearse(loader, workers) == []
    assert "rehearsals" not in session.facts


def test_items_that_workers_cannot_make_are_told_and_training_goes_on(session, rehearse, monkeypatch):
    monkeypatch.setattr(boundary, "faults", [])
    assert rehearse(DataLoader(Broken(), batch_size=4), 1) == []
    assert "rehearsals" not in session.facts
    assert boundary.faults == ["1 workers: RuntimeError in the rehearsal"]


def test_numbers_are_doubled_as_far_as_there_are_cores(monkeypatch):
    for cores, wanted in ((1, [0, 1]), (2, [0, 1, 2]), (6, [0, 1, 2, 4]), (64, [0, 1, 2, 4, 8])):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: range(cores), raising=False)
        assert numbers_of_workers() == wanted
