"""Fabric and Accelerate: loops of one's own around torch's optimizers, and what their constructors are offered."""

import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.integrations.accelerate import Accelerate
from hotlap.integrations.lightning import Lightning
from hotlap.plan.catalogue import some_knobs
from hotlap.seams import loader, step
from hotlap.seams.fitter import Fitter

FRAMEWORKS = {Lightning: "lightning.fabric.fabric", Accelerate: "accelerate.accelerator"}


@pytest.fixture(scope="module", autouse=True)
def frameworks():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import accelerate  # noqa: F401
        import lightning.fabric
        import lightning.pytorch  # noqa: F401
    yield


@pytest.fixture
def fitted():
    made = []

    def fit(**settings):
        plan = {key.replace("_", "-"): value for key, value in settings.items()}
        fitter = Fitter(plan, some_knobs(plan))
        loader.install(fitter)
        step.install(fitter)
        for framework, name in FRAMEWORKS.items():
            framework().offer(sys.modules[name], fitter)
        made.append(fitter)
        return fitter

    yield fit
    for fitter in made:
        fitter.undo()


def parts():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
    train_loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(1))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01), train_loader


def with_fabric():
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cpu", devices=1)
    model, optimizer, train_loader = parts()
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer = fabric.setup(model, optimizer)
    for x, y in fabric.setup_dataloaders(train_loader):
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(model(x), y))
        fabric.clip_gradients(model, optimizer, max_norm=0.1)
        optimizer.step()
        schedule.step()
    return model, schedule


def with_accelerate():
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    accelerator = Accelerator(cpu=True)
    model, optimizer, train_loader = parts()
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    model, optimizer, train_loader, prepared = accelerator.prepare(model, optimizer, train_loader, schedule)
    for x, y in train_loader:
        optimizer.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(x), y))
        accelerator.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        prepared.step()
    return model, schedule


@pytest.mark.filterwarnings("ignore")  # the frameworks' own
@pytest.mark.parametrize("train", [with_fabric, with_accelerate])
def test_small_batches_accumulate_to_the_scripts_own(train, fitted):
    alone, schedule = train()
    fitter = fitted(batch_size=4, accumulate=4)
    model, small_schedule = train()
    for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert small_schedule.last_epoch == schedule.last_epoch == 4
    assert {(each.knob, each.acts) for each in fitter.fitted} == {("accumulate", True), ("batch-size", True)}
    assert model.state_dict().keys() == alone.state_dict().keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("train", "name"), [(with_fabric, "fabric"), (with_accelerate, "accelerate")])
def test_precision_is_the_frameworks_own(train, name, fitted):
    fitter = fitted(precision="bf16-mixed")
    train()
    assert [(each.knob, each.place, each.acts) for each in fitter.fitted] == [("precision", name, True)]


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has a GPU")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [with_fabric, with_accelerate])
def test_sixteen_bits_without_a_gpu_are_refused_and_training_goes_on(train, fitted):
    alone, _ = train()
    fitter = fitted(precision="16-mixed")
    model, _ = train()
    assert [each.acts for each in fitter.fitted] == [False]
    assert "bf16-mixed" in fitter.fitted[0].reason
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), alone.parameters(), strict=True))
