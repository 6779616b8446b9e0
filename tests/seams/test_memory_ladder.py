"""What a training process writes down for the time when it is gone."""

import gc
import sys

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.seams import memory_ladder
from hotlap.seams.fitter import Fitter


@pytest.fixture
def notes(monkeypatch):
    """The fitter's notes, and `end()`, which does what the end of the process would."""
    fitter, endings = Fitter({}, {}), []
    monkeypatch.setattr(memory_ladder.atexit, "register", endings.append)
    memory_ladder.install(fitter)
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    fitter.end = lambda: [ending() for ending in endings]
    yield fitter
    fitter.undo()


class Hungry(nn.Module):
    """Asks for more memory than there is; as a part of a model that may itself be in another mode."""

    def forward(self, x):
        return x.expand(2**40, len(x)).contiguous()


def fail_in(model):
    try:
        model(torch.ones(2))
    except RuntimeError as error:
        sys.last_value = error  # as Python does before it ends


def train(batch, steps):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=batch)
    for (x,), _ in zip(loader, range(steps), strict=False):
        model(x).sum().backward()
        optimizer.step()
    return model


def test_batches_are_noted_before_the_first_step_and_training_has_the_last_word(notes):
    list(DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=8))  # a look at the data, or validation
    assert notes.notes == {"batch": 8}
    train(batch=2, steps=2)
    list(DataLoader(TensorDataset(torch.ones(8, 2)), batch_size=4))
    assert notes.notes == {"batch": 2, "optimizers": ["SGD"]}


def test_optimizers_that_are_alive_are_named(notes):
    weights = [torch.ones(2, requires_grad=True)]
    kept = torch.optim.Adam(weights)
    torch.optim.LBFGS(weights)
    gc.collect()
    also = torch.optim.SGD(weights)
    assert notes.notes["optimizers"] == sorted(type(each).__name__ for each in (kept, also))


def test_what_was_saved_and_loaded_is_noted_with_its_step(notes, tmp_path):
    torch.save({}, tmp_path / "before.pt")
    assert "saved" not in notes.notes  # no step is in it
    model = train(batch=4, steps=2)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    torch.load(tmp_path / "model.pt")
    assert (notes.notes["saved"], "loaded" in notes.notes) == (2, False)


def test_a_load_before_the_first_step_is_a_resume(notes, tmp_path):
    torch.save({}, tmp_path / "before.pt")
    torch.load(tmp_path / "before.pt")
    assert notes.notes == {"loaded": True}


@pytest.mark.parametrize(
    ("model_trains", "part_trains", "kind"),
    [(True, True, "out-of-memory"), (True, False, "out-of-memory"), (False, False, "other")],
    ids=["training", "training with a frozen part", "validation"],
)
def test_memory_that_runs_out_in_validation_is_the_scripts(notes, model_trains, part_trains, kind):
    model = nn.Sequential(Hungry()).train(model_trains)
    model[0].train(part_trains)
    fail_in(model)
    notes.end()
    assert notes.notes["fault"] == {"kind": kind, "step": 0}


def test_a_script_that_ends_well_has_no_fault(notes):
    train(batch=4, steps=1)
    notes.end()
    assert "fault" not in notes.notes


def test_undone_torch_is_as_it_was():
    before = (torch.save, torch.load, DataLoader.__iter__)
    fitter = Fitter({}, {})
    memory_ladder.install(fitter)
    assert torch.save is not before[0]
    fitter.undo()
    assert (torch.save, torch.load, DataLoader.__iter__) == before
