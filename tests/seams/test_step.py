"""Loops of one's own under the step seam: what a large batch does, several small ones do."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW, lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

from hotlap.knobs.accumulate import Accumulate
from hotlap.seams import step
from hotlap.seams.fitter import Fitter

ROWS = 64


@pytest.fixture
def fitted():
    """`fitted(accumulate=4)`: a fitter with the step seam in place, taken back after the test."""
    made = []

    def fit(**settings):
        fitter = Fitter(settings, {"accumulate": Accumulate()})
        step.install(fitter)
        made.append(fitter)
        return fitter

    yield fit
    for fitter in made:
        fitter.undo()


class Loop:
    """A training loop in pieces, so that tests can write theirs in other ways."""

    def __init__(self, batch, kind=SGD, **options):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
        self.optimizer = kind(self.model.parameters(), **{"lr": 0.1, **options})
        data = TensorDataset(torch.randn(ROWS, 8), torch.randn(ROWS, 1))
        order = torch.Generator().manual_seed(1)
        self.loader = DataLoader(data, batch_size=batch, shuffle=True, generator=order)

    def loss(self, x, y):
        return nn.functional.mse_loss(self.model(x), y)

    @property
    def weights(self):
        return torch.cat([each.detach().flatten() for each in self.model.parameters()])


def plain(batch, *, kind=SGD, clear="before", clip=None, epochs=2, schedule=None, **options):
    loop = Loop(batch, kind, **options)
    each_step, each_epoch = schedule(loop.optimizer) if schedule else (None, None)
    for _ in range(epochs):
        for x, y in loop.loader:
            if clear == "before":
                loop.optimizer.zero_grad()
            loop.loss(x, y).backward()
            if clip == "norm":
                nn.utils.clip_grad_norm_(loop.model.parameters(), 0.1)
            elif clip == "value":
                nn.utils.clip_grad_value_(loop.model.parameters(), 0.01)
            loop.optimizer.step()
            if each_step:
                each_step.step()
            if clear == "model":
                loop.model.zero_grad(set_to_none=False)
        if each_epoch:
            each_epoch.step()
    loop.schedules = [each.last_epoch for each in (each_step, each_epoch) if each]
    return loop


def two_schedules(optimizer):
    warm = lr_scheduler.LinearLR(optimizer, total_iters=3)
    late = lr_scheduler.CosineAnnealingLR(optimizer, 8)
    return lr_scheduler.SequentialLR(optimizer, [warm, late], [3]), lr_scheduler.ExponentialLR(optimizer, 0.5)


@pytest.mark.filterwarnings("ignore:The epoch parameter in `scheduler.step")  # by torch's own SequentialLR
@pytest.mark.parametrize(
    "way",
    [
        {"kind": SGD, "momentum": 0.9, "clear": "before"},
        {"kind": AdamW, "clear": "model", "clip": "norm"},
        {"kind": SGD, "clip": "value", "schedule": two_schedules},
    ],
    ids=["momentum", "adam, clipped, cleared after", "clipped by value, two schedules"],
)
def test_four_small_batches_are_one_large_one(fitted, way):
    large = plain(16, **way)
    fitter = fitted(accumulate=4)
    small = plain(4, **way)
    torch.testing.assert_close(small.weights, large.weights, rtol=1e-5, atol=1e-6)
    assert small.schedules == large.schedules
    assert small.optimizer.param_groups[0]["lr"] == pytest.approx(large.optimizer.param_groups[0]["lr"])
    assert [(each.knob, each.acts) for each in fitter.fitted] == [("accumulate", True)]


def test_what_is_saved_is_what_the_script_alone_would_save(fitted):
    large = plain(16, kind=AdamW)
    fitted(accumulate=4)
    small = plain(4, kind=AdamW)
    assert small.model.state_dict().keys() == large.model.state_dict().keys()
    ours, theirs = small.optimizer.state_dict(), large.optimizer.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    assert [each["step"] for each in ours["state"].values()] == [
        each["step"] for each in theirs["state"].values()
    ]
    copy.deepcopy(small.optimizer)


def test_accumulation_of_the_script_is_multiplied(fitted):
    def twice(batch):
        loop = Loop(batch)
        for number, (x, y) in enumerate(loop.loader, start=1):
            (loop.loss(x, y) / 2).backward()
            if number % 2 == 0:
                loop.optimizer.step()
                loop.optimizer.zero_grad()
        return loop.weights

    large = twice(16)
    fitted(accumulate=2)
    torch.testing.assert_close(twice(8), large, rtol=1e-5, atol=1e-6)


def test_a_closure_computes_the_gradients_of_steps_that_are_left_out(fitted):
    def closed(batch):
        loop = Loop(batch)
        for x, y in loop.loader:

            def closure(x=x, y=y):
                loop.optimizer.zero_grad()
                loss = loop.loss(x, y)
                loss.backward()
                return loss

            assert loop.optimizer.step(closure).ndim == 0  # also where no step is made
        return loop.weights

    large = closed(16)
    fitted(accumulate=4)
    torch.testing.assert_close(closed(4), large, rtol=1e-5, atol=1e-6)


def test_a_grad_scaler_scales_and_updates_once_for_each_step(fitted):
    def scaled(batch):
        loop = Loop(batch)
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        for x, y in loop.loader:
            loop.optimizer.zero_grad()
            scaler.scale(loop.loss(x, y)).backward()
            scaler.unscale_(loop.optimizer)
            nn.utils.clip_grad_norm_(loop.model.parameters(), 0.1)
            scaler.step(loop.optimizer)
            scaler.update()
        return loop.weights, scaler.get_scale()

    large, scale = scaled(16)
    fitted(accumulate=4)
    small, small_scale = scaled(4)
    torch.testing.assert_close(small, large, rtol=1e-5, atol=1e-6)
    assert small_scale == scale == 256.0  # four steps grew it twice


def test_a_left_out_clip_returns_the_norm_and_clips_nothing(fitted):
    fitted(accumulate=2)
    loop = Loop(4)
    x, y = next(iter(loop.loader))
    loop.loss(x, y).backward()
    before = [each.grad.clone() for each in loop.model.parameters()]
    norm = nn.utils.clip_grad_norm_(loop.model.parameters(), 1e-3)
    assert norm > 1e-3
    assert norm == pytest.approx(torch.cat([each.flatten() for each in before]).norm())
    assert all(torch.equal(each.grad, old) for each, old in zip(loop.model.parameters(), before, strict=True))


def test_a_compiled_model_is_traced_through(fitted):
    def compiled(batch):
        loop = Loop(batch)
        loss = torch.compile(loop.loss, backend="eager", fullgraph=True)
        for x, y in loop.loader:
            loop.optimizer.zero_grad()
            loss(x, y).backward()
            loop.optimizer.step()
        return loop.weights

    large = compiled(16)
    fitted(accumulate=4)
    torch.testing.assert_close(compiled(4), large, rtol=1e-5, atol=1e-6)


def test_undone_in_the_middle_every_step_is_made_again(fitted):
    before = (SGD.step, SGD.zero_grad, torch.autograd.backward, nn.utils.clip_grad_norm_, nn.Module.zero_grad)
    alone = plain(16).weights
    fitter = fitted(accumulate=4)
    plain(4)
    fitter.undo()
    after = (SGD.step, SGD.zero_grad, torch.autograd.backward, nn.utils.clip_grad_norm_, nn.Module.zero_grad)
    assert after == before
    assert torch.equal(plain(16).weights, alone)


def train(loop, optimizers):
    for x, y in loop.loader:
        for each in optimizers:
            each.zero_grad()
        loop.loss(x, y).backward()
        for each in optimizers:
            each.step()


def test_two_optimizers_are_refused(fitted):
    fitter = fitted(accumulate=2)
    loop = Loop(16)
    train(loop, [loop.optimizer, AdamW(loop.model[0].parameters())])
    assert [each.acts for each in fitter.fitted] == [False]
    assert "2 optimizers" in fitter.fitted[0].reason


def test_lbfgs_is_refused_and_trains_as_alone(fitted):
    def lbfgs():
        loop = Loop(32, torch.optim.LBFGS, max_iter=3)
        for x, y in loop.loader:

            def closure(x=x, y=y):
                loop.optimizer.zero_grad()
                loss = loop.loss(x, y)
                loss.backward()
                return loss

            loop.optimizer.step(closure)
        return loop.weights

    alone = lbfgs()
    fitter = fitted(accumulate=2)
    assert torch.equal(lbfgs(), alone)
    assert "LBFGS" in fitter.fitted[0].reason


def test_a_script_without_an_optimizer_is_refused(fitted):
    fitter = fitted(accumulate=2)
    weight = torch.ones(3, requires_grad=True)
    (weight**2).sum().backward()
    assert weight.grad.tolist() == [2.0, 2.0, 2.0]
    assert "without an optimizer" in fitter.fitted[0].reason


def test_gradients_that_the_script_clears_itself_withdraw_it(fitted):
    def by_hand(batch):
        loop = Loop(batch)
        for x, y in loop.loader:
            for each in loop.model.parameters():
                each.grad = None
            loop.loss(x, y).backward()
            before = loop.weights
            loop.optimizer.step()
            yield not torch.equal(before, loop.weights)

    fitter = fitted(accumulate=2)
    assert list(by_hand(16)) == [False, True, True, True]  # the first was left out before anybody knew
    assert [(each.acts, "clears its gradients" in each.reason) for each in fitter.fitted] == [(False, True)]


def test_a_plan_without_a_setting_for_it_leaves_torch_alone():
    before = (SGD.step, torch.autograd.backward)
    step.install(Fitter({}, {}))
    assert (SGD.step, torch.autograd.backward) == before
