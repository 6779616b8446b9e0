"""`hotlap.apply` in one's own code: on objects that are there, on those that come, and gone without a trace."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
)

import hotlap
from hotlap.errors import UsageError

DATA = TensorDataset(torch.arange(32.0).reshape(16, 2))


class Rows(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(6.0))


class Own(DataLoader):
    def __init__(self, rows: Dataset) -> None:
        super().__init__(rows, batch_size=4)


def batches(loader: DataLoader) -> list[list[float]]:
    torch.manual_seed(3)
    return [(batch if torch.is_tensor(batch) else batch[0]).flatten().tolist() for batch in loader]


@pytest.fixture
def applied():
    """Applies a plan for one test."""
    made = []

    def apply(plan, **objects):
        made.append(hotlap.apply(plan, **objects))
        return made[-1]

    yield apply
    for each in made:
        each.undo()


@pytest.mark.parametrize(
    "build",
    [
        lambda: DataLoader(DATA, batch_size=4),
        lambda: DataLoader(DATA, batch_size=3, shuffle=True, drop_last=True),
        lambda: DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(5)),
        lambda: DataLoader(DATA, batch_size=2, sampler=SubsetRandomSampler([1, 5, 7])),
        lambda: DataLoader(DATA, batch_sampler=BatchSampler(range(5), 2, drop_last=False)),
        lambda: DataLoader(DATA, batch_size=None),
        lambda: DataLoader(Rows(), batch_size=4),
        lambda: DataLoader(
            DATA, batch_size=4, collate_fn=lambda rows: torch.stack([row[0] for row in rows]) + 1
        ),
    ],
)
def test_a_loader_is_rebuilt_as_it_was(applied, build):
    own, rebuilt = build(), applied({}, loader=build()).loader
    assert rebuilt is not own
    expected = batches(own)
    assert expected and batches(rebuilt) == expected


def test_a_loader_with_a_constructor_of_its_own_is_left_alone(applied):
    own = Own(DATA)
    assert applied({"num-workers": 1}, loader=own).loader is own


def test_a_plan_acts_on_what_is_there_and_on_what_comes_until_it_is_taken_back(applied):
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(net.parameters())
    autocast: list[bool] = []
    net.register_forward_hook(lambda *_: autocast.append(torch.is_autocast_enabled("cpu")))
    before = set(vars(net))
    plan = applied(
        hotlap.Plan(
            {"num-workers": 1, "fused-optimizer": "fused", "precision": "bf16-mixed", "log-every": 9}
        ),
        model=net,
        optimizer=optimizer,
        loader=DataLoader(DATA, batch_size=4, shuffle=True),
    )
    told = {each.knob: each for each in plan.fitted}
    assert {key for key, each in told.items() if each.acts} == {"num-workers", "fused-optimizer", "precision"}
    assert "log-every=9 cannot act" in str(plan)
    assert plan.loader.num_workers == 1 and optimizer.param_groups[0]["fused"] is True
    assert torch.optim.Adam(net.parameters()).param_groups[0]["fused"] is True
    net(torch.ones(1, 2))
    plan.undo()
    net(torch.ones(1, 2))
    assert autocast == [True, False]
    assert optimizer.param_groups[0]["fused"] is None
    assert torch.optim.Adam(net.parameters()).param_groups[0]["fused"] is None
    assert DataLoader(DATA).num_workers == 0
    assert set(vars(net)) == before


def test_models_optimizers_and_data_that_are_let_go_go(applied):
    """Of one fold after the other, say: a plan must not fill the device with those before."""
    applied({"fused-optimizer": "fused", "precision": "bf16-mixed", "accumulate": 2, "num-workers": 0})
    held: list[weakref.ref[object]] = []

    def fold() -> None:
        net, data = torch.nn.Linear(2, 1), TensorDataset(torch.randn(8, 2))
        optimizer = torch.optim.Adam(net.parameters())
        for (rows,) in DataLoader(data, batch_size=2):
            net(rows).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        held.extend(map(weakref.ref, (net, net.weight, optimizer, data)))

    for _ in range(3):
        fold()
    gc.collect()
    assert [each() for each in held] == [None] * 12


def test_a_plan_is_refused_as_on_the_command_line(tmp_path):
    with pytest.raises(UsageError, match="no knob is called 'num_workers'"):
        hotlap.apply({"num_workers": 4})
    (tmp_path / "plan.yaml").write_text("hotlap: 1\nsettings: {set-to-none: true}\n")
    assert hotlap.read_plan(tmp_path / "plan.yaml").settings == {"set-to-none": True}
    hotlap.apply(tmp_path / "plan.yaml").undo()


def test_few_names_are_public_and_all_are_there():
    assert len(hotlap.__all__) <= 12
    assert set(hotlap.__all__) <= set(dir(hotlap))
    assert callable(hotlap.apply) and callable(hotlap.read_plan)
    with pytest.raises(AttributeError, match="no attribute 'aply'"):
        _ = hotlap.aply
