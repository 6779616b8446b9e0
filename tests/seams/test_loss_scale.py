"""Losses are scaled up and gradients down again; what the script sees of them has its true size."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hotlap.seams.fitter import Fitter
from hotlap.seams.loss_scale import LossScale
from hotlap.seams.training import Training


class Scaled:
    """A loss scale that is in use, and what it says when it has no hope."""

    def __init__(self):
        self.fitter, self.training, self.hopeless = Fitter({}, {}), Training(), []
        self.training.listen(self.fitter)
        self.scale = LossScale(self.training, self.hopeless.append)
        self.off = self.scale.use([])


@pytest.fixture
def scaled():
    made = Scaled()
    yield made
    made.fitter.undo()


def seeded(kind=torch.optim.SGD, **options):
    torch.manual_seed(0)
    net = nn.Linear(3, 2)
    return net, kind(net.parameters(), **({"lr": 0.1} | options))


def overflow(net):
    """A gradient that is not finite, as float16 would make it."""
    (net(torch.ones(1, 3)).sum() * torch.inf).backward()


def test_gradients_have_their_true_size_and_passed_through_large_ones(scaled):
    net, _ = seeded()
    met = []
    net.weight.register_hook(lambda gradient: met.append(gradient.abs().max().item()))
    net(torch.ones(1, 3)).sum().backward()
    assert met == [2.0**16]
    assert net.weight.grad.equal(torch.ones(2, 3))


def test_accumulated_gradients_are_exact(scaled):
    net, _ = seeded()
    x = torch.randn(4, 3)
    for part in x:
        net(part).square().sum().backward()
    found = net.weight.grad.clone()
    scaled.off()
    net.zero_grad()
    for part in x:
        net(part).square().sum().backward()
    assert found.equal(net.weight.grad)


def test_gradients_that_a_script_passes_in(scaled):
    net, _ = seeded()
    out = net(torch.ones(1, 3))
    torch.autograd.backward([out[:, 0].sum(), out], [None, torch.full((1, 2), 3.0)])
    assert net.bias.grad.tolist() == [4.0, 3.0]


def test_a_step_that_overflows_is_left_out_and_the_scale_halved(scaled):
    net, adam = seeded(torch.optim.Adam)
    before = net.weight.detach().clone()
    overflow(net)
    gradient = net.weight.grad
    adam.step()
    assert net.weight.equal(before) and not adam.state
    assert net.weight.grad is gradient, "the script finds its gradients as they were"
    assert scaled.scale.scale == 2.0**15
    adam.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    adam.step()
    assert not net.weight.equal(before)
    assert scaled.scale.scale == 2.0**15


def test_two_optimizers_of_one_loss(scaled):
    """Both leave the step out; the scale is halved once."""
    first, one = seeded()
    second, two = seeded()
    before = first.weight.detach().clone(), second.weight.detach().clone()
    ((first(torch.ones(1, 3)) + second(torch.ones(1, 3))).sum() * torch.inf).backward()
    one.step()
    two.step()
    assert first.weight.equal(before[0]) and second.weight.equal(before[1])
    assert scaled.scale.scale == 2.0**15


def test_what_one_network_overflows_is_not_the_others_fault(scaled):
    first, one = seeded()
    second, two = seeded()
    overflow(first)
    one.step()
    before = second.weight.detach().clone()
    second(torch.ones(1, 3)).sum().backward()  # first's gradients are still there, and not finite
    two.step()
    assert not second.weight.equal(before)


def test_a_backward_inside_of_a_backward_is_scaled_once(scaled):
    net, _ = seeded()
    x = torch.ones(1, 3, requires_grad=True)
    checkpoint(net, x, use_reentrant=True).sum().backward()
    assert net.weight.grad.equal(torch.ones(2, 3))


def test_a_closure_that_passes_back_inside_of_the_step(scaled):
    """As Lightning calls its optimizers."""
    net, adam = seeded(torch.optim.Adam)
    before = net.weight.detach().clone()
    adam.step(lambda: overflow(net))
    assert net.weight.equal(before) and not adam.state and scaled.scale.scale == 2.0**15
    adam.zero_grad()
    adam.step(lambda: net(torch.ones(1, 3)).sum().backward())
    assert not net.weight.equal(before)


def test_a_step_around_a_step_is_one(scaled):
    class Around(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    net, sgd = seeded(Around)
    before = net.weight.detach().clone()
    overflow(net)
    sgd.step()
    assert net.weight.equal(before) and net.weight.grad is not None
    assert scaled.training.steps == 1


def test_sparse_gradients(scaled):
    table = nn.Embedding(5, 2, sparse=True)
    adam = torch.optim.SparseAdam(table.parameters())
    table(torch.tensor([1, 3])).sum().backward()
    adam.step()
    assert table.weight.grad.coalesce().values().equal(torch.ones(2, 2))


def test_it_grows_after_many_good_steps(scaled, monkeypatch):
    monkeypatch.setattr("hotlap.seams.loss_scale.GROWTH_EVERY", 3)
    net, sgd = seeded()
    for _ in range(3):
        net(torch.ones(1, 3)).sum().backward()
        sgd.step()
    assert scaled.scale.scale == 2.0**17


def test_without_hope_it_says_so(scaled):
    net, sgd = seeded()
    for _ in range(17):
        sgd.zero_grad()
        overflow(net)
        sgd.step()
    assert scaled.hopeless == ["gradients overflow at every loss scale"]


def test_turned_off_it_leaves_nothing(scaled):
    net, sgd = seeded()
    overflow(net)
    scaled.off()
    scaled.off()
    sgd.zero_grad()
    met = []
    net.weight.register_hook(lambda gradient: met.append(gradient.max().item()))
    net(torch.ones(1, 3)).sum().backward()
    assert met == [1.0]
    assert not scaled.training.backward and not scaled.training.step_begins
