"""The number of threads of the training process, whoever sets another; workers keep their own."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from hotlap.knobs.compute_threads import ComputeThreads


@pytest.fixture(autouse=True)
def threads():
    before, function = torch.get_num_threads(), torch.set_num_threads
    yield before
    assert torch.get_num_threads() == before and torch.set_num_threads is function


class Asked(Dataset):
    """Each item is the number of threads where it is made."""

    def __len__(self):
        return 2

    def __getitem__(self, _):
        return torch.get_num_threads()


def test_it_holds_against_the_script_and_is_undone(fit_compute, threads):
    fitter = fit_compute(compute_threads=2)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(3)
    assert torch.get_num_threads() == 2
    fitter.undo()
    assert torch.get_num_threads() == 3, "as the script has asked for"
    torch.set_num_threads(threads)


def test_a_script_that_sets_nothing_gets_its_own_number_back(fit_compute, threads):
    fitter = fit_compute(compute_threads=threads + 1)
    assert torch.get_num_threads() == threads + 1
    fitter.undo()
    assert torch.get_num_threads() == threads


def test_what_torch_refuses_is_refused(fit_compute):
    fitter = fit_compute(compute_threads=2)
    with pytest.raises(RuntimeError):
        torch.set_num_threads(0)
    fitter.undo()


def test_workers_and_other_threads_keep_their_own(fit_compute):
    fitter = fit_compute(compute_threads=2)
    assert [int(each) for each in DataLoader(Asked(), num_workers=1)] == [1, 1]
    seen = []

    def pins():
        torch.set_num_threads(1)
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=pins)
    thread.start()
    thread.join()
    assert seen == [1] and torch.get_num_threads() == 2
    fitter.undo()


def test_a_training_differs_by_rounding_at_most(fit_compute, train):
    plain = train(shape=(512, 8))
    fitter = fit_compute(compute_threads=2)
    done = train(shape=(512, 8))
    fitter.undo()
    assert done.apart_from(plain) < 1e-4
    (record,) = fitter.fitted
    assert record.acts and record.numerics == "rounding"


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = ComputeThreads(), compute_host()  # four cores
    timeline = compute_timeline()  # two threads
    assert knob.settings(host, timeline) == (1, 4)
    assert knob.settings(host, replace(timeline, runtime=replace(timeline.runtime, threads=8))) == (1, 2, 4)
    assert knob.settings(host, replace(timeline, world=4)) == (1,)
    assert knob.settings(host, compute_timeline(device="cuda")) == ()
    assert knob.ceiling(timeline, host) == pytest.approx(1.0)
    assert knob.ceiling(compute_timeline(device="cuda"), host) == 0.0
