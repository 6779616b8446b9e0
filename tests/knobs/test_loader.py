"""The knob `loader`: the same batches in an unmodified script, or a refusal with its reason."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from hotlap.data.loader_iter import LoaderIter
from hotlap.knobs.loader import LoaderKnob
from hotlap.ports.knob import CannotActError
from hotlap.ports.target import Loader

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Squares(Dataset):
    def __len__(self):
        return 240

    def __getitem__(self, index):
        noise = float(sum(number * number for number in range(2000)) % 7)
        return torch.full((8,), index / 240) + noise, torch.tensor([index / 240])

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Squares(), batch_size=8, shuffle=True, num_workers=0)
for epoch in range(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        (model(inputs) - targets).pow(2).mean().backward()
        optimizer.step()
print([parameter.double().sum().item() for parameter in model.parameters()], torch.rand(1).item())
"""


class Rows(Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return torch.tensor([index])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def target_of(dataset, **options):
    facts = {name: options.pop(name) for name in ("draws", "lazy", "iterable") if name in options}
    bound = inspect.signature(DataLoader.__init__).bind(None, dataset, **options)
    bound.apply_defaults()
    return Loader({name: value for name, value in bound.arguments.items() if name != "self"}, **facts)


def test_a_loader_is_taken_over_and_given_back():
    target = target_of(Rows(), batch_size=4, num_workers=2)
    undo = LoaderKnob().apply(target, True)
    loader = DataLoader(**target.arguments)
    for act in target.after:
        act(loader)
    batches = iter(loader)
    assert isinstance(batches, LoaderIter)
    assert [batch.flatten().tolist() for batch in batches] == [
        list(range(at, at + 4)) for at in range(0, 20, 4)
    ]
    undo()
    assert not isinstance(iter(loader), LoaderIter)
    assert target.after == []


def noisy(items):
    return default_collate(items) + torch.rand(1)


class Broken(Rows):
    def __getitem__(self, index):
        raise KeyError(f"no row {index}")


@pytest.mark.parametrize(
    ("dataset", "options", "reason"),
    [
        (Stream(), {"iterable": True}, "a stream"),
        (Rows(), {"in_order": False}, "out of order"),
        (Rows(), {"draws": lambda: "its items draw random numbers"}, "draw random numbers"),
        (Rows(), {"lazy": lambda: "its sampler draws"}, "its sampler draws"),
        (
            Rows(),
            {"collate_fn": noisy, "batch_size": 4},
            "in two processes with different seeds, was not the same",
        ),
        (Broken(), {}, "could not be fetched in a worker process .KeyError"),
        ([], {}, "it has no items"),
    ],
)
def test_what_cannot_be_proved_is_refused(dataset, options, reason):
    target = target_of(dataset, **options)
    with pytest.raises(CannotActError, match=reason):
        LoaderKnob().apply(target, True)
    assert target.after == []


def test_switched_off_it_does_nothing():
    target = target_of(Rows())
    LoaderKnob().apply(target, False)
    assert target.after == []


def test_a_script_trains_the_same_model(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plan.yaml").write_text("hotlap: 1\nsettings:\n  loader: true\n")
    plain = _said(tmp_path, sys.executable, "train.py")
    under = _said(tmp_path, sys.executable, "-m", "hotlap", "run", "--plan", "plan.yaml", "train.py")
    assert plain.stdout == under.stdout
    assert "applied loader=true at train.py" in under.stderr


def _said(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, timeout=120)


def test_a_loader_that_was_taken_over_is_collected():
    target = target_of(Rows(), batch_size=4)
    LoaderKnob().apply(target, True)
    loader = DataLoader(**target.arguments)
    target.after[0](loader)
    next(batches := iter(loader))
    watched = weakref.ref(loader), weakref.ref(batches)
    del loader, batches
    gc.collect()
    assert [each() for each in watched] == [None, None]
