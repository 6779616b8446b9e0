"""The learning rate of steps with a batch that is not the script's own."""

import itertools

import pytest
import torch
from torch import nn
from torch.optim import SGD, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from hotlap.knobs.accumulate import Accumulate
from hotlap.knobs.batch_size import BatchSize
from hotlap.knobs.scale_lr import _WARM_UP_STEPS, ScaleLr
from hotlap.seams import loader, step
from hotlap.seams.fitter import Fitter

KNOBS = {"accumulate": Accumulate(), "batch-size": BatchSize(), "scale-lr": ScaleLr()}


@pytest.fixture
def fitted():
    made = []

    def fit(**settings):
        fitter = Fitter({key.replace("_", "-"): value for key, value in settings.items()}, KNOBS)
        loader.install(fitter)
        step.install(fitter)
        made.append(fitter)
        return fitter

    yield fit
    for fitter in made:
        fitter.undo()


class Noting(SGD):
    """Keeps the rates that its steps are made with; its `super().step()` is a step inside a step."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.rates = []
        self.fails = False

    def step(self, closure=None):
        self.rates.append(float(self.param_groups[0]["lr"]))
        if self.fails:
            raise ArithmeticError
        return super().step(closure)


def train(batch=8, steps=3, optimizer=None, lr=0.1, schedule=None):
    model = nn.Linear(4, 1)
    optimizer = optimizer or Noting(model.parameters(), lr=lr)
    scheduler = schedule(optimizer) if schedule else None
    data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    train_loader = DataLoader(data, batch_size=batch, shuffle=True)
    while len(optimizer.rates) < steps:
        for x, y in train_loader:
            optimizer.zero_grad()
            (model(x) - y).pow(2).mean().backward()
            optimizer.step()
            if scheduler:
                scheduler.step()
    return optimizer


def test_a_larger_batch_warms_up_to_the_whole_factor(fitted):
    fitter = fitted(batch_size=32, scale_lr="linear")
    optimizer = train(steps=_WARM_UP_STEPS + 2)
    rates = optimizer.rates
    assert [each.acts for each in fitter.fitted] == [True, True]
    assert 0.1 < rates[0] < 0.11
    assert all(one < other for one, other in itertools.pairwise(rates[: _WARM_UP_STEPS + 1]))
    assert rates[_WARM_UP_STEPS] == pytest.approx(0.4)
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert optimizer.state_dict()["param_groups"][0]["lr"] == 0.1


def test_a_smaller_batch_is_scaled_at_once_and_sqrt_is_gentler(fitted):
    fitted(batch_size=2, scale_lr="sqrt")
    assert train().rates == pytest.approx([0.05] * 32)


def test_a_schedule_of_the_script_is_multiplied(fitted):
    fitted(batch_size=4, scale_lr="linear")
    rates = train(schedule=lambda each: lr_scheduler.ExponentialLR(each, 0.5)).rates
    assert rates[:3] == pytest.approx([0.05, 0.025, 0.0125])


def test_accumulation_counts_and_undoes_a_smaller_batch(fitted):
    fitter = fitted(batch_size=2, accumulate=4, scale_lr="linear")
    optimizer = train()
    assert set(optimizer.rates) == {0.1}
    refused = next(each for each in fitter.fitted if each.knob == "scale-lr")
    assert not refused.acts
    assert "as large as the script's own" in refused.reason


def test_a_run_that_goes_on_does_not_warm_up_again(fitted):
    alone = train(optimizer=None)
    fitted(batch_size=32, scale_lr="linear")
    resumed = Noting(nn.Linear(4, 1).parameters(), lr=0.1, momentum=0.9)
    resumed.state[resumed.param_groups[0]["params"][0]]["momentum_buffer"] = torch.zeros(1, 4)
    for group in resumed.param_groups:
        group["params"] = group["params"][:1]
    assert train(optimizer=resumed, steps=1).rates[0] == pytest.approx(0.4)
    assert alone.rates[0] == 0.1


def test_a_step_that_raises_leaves_the_scripts_rate_in_the_end(fitted):
    fitter = fitted(batch_size=2, scale_lr="linear")
    optimizer = train()
    optimizer.fails = True
    with pytest.raises(ArithmeticError):
        optimizer.step()
    optimizer.fails = False
    optimizer.step()
    assert optimizer.rates[-2:] == pytest.approx([0.025, 0.025])
    assert optimizer.param_groups[0]["lr"] == 0.1
    fitter.undo()
    optimizer.step()
    assert optimizer.rates[-1] == 0.1


def test_a_rate_that_is_a_tensor_is_given_back_as_the_same_tensor(fitted):
    fitted(batch_size=2, scale_lr="linear")
    rate = torch.tensor(0.1)
    optimizer = train(lr=rate)
    assert optimizer.rates[-1] == pytest.approx(0.025)
    assert optimizer.param_groups[0]["lr"] is rate
    assert float(rate) == pytest.approx(0.1)


def test_off_changes_nothing(fitted):
    fitter = fitted(batch_size=32, scale_lr="off")
    assert set(train().rates) == {0.1}
    assert next(each for each in fitter.fitted if each.knob == "scale-lr").numerics == "bitwise"
