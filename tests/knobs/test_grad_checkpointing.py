"""Activations are computed again: the same numbers, less memory, and a refusal where that would not hold."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hotlap.knobs.compile import BACKEND
from hotlap.knobs.grad_checkpointing import GradCheckpointing


class Blocks(nn.Module):
    """Blocks with dropout in a ModuleList, as transformers have them."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2)) for _ in range(3))
        self.last, self.forwards = nn.Linear(8, 4), []
        for block in self.blocks:
            block[0].register_forward_pre_hook(lambda *_: self.forwards.append(1))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def only(records):
    (record,) = records
    return record


def test_the_same_bits_with_each_block_computed_twice(fit_compute, train):
    plain = train(Blocks, steps=4)
    fitter = fit_compute(grad_checkpointing=True)
    done = train(Blocks, steps=4)
    assert done.same_as(plain)
    assert (len(plain.net.forwards), len(done.net.forwards)) == (12, 24)
    assert only(fitter.fitted).acts
    with torch.no_grad():
        done.net(torch.ones(1, 8))
    assert len(done.net.forwards) == 27, "without gradients there is nothing to save"
    fitter.undo()
    assert not [each for each in done.net.modules() if "_compiled_call_impl" in vars(each)]


def test_what_is_kept_for_backward_is_less(fit_compute, train):
    def kept():
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            train(Blocks, steps=2)
        return sum(sizes)

    plain = kept()
    fit_compute(grad_checkpointing=True)
    # Inputs of checkpointed blocks are held by the checkpoint itself: three of 32 x 8 in each of two steps.
    assert kept() + 2 * 3 * 32 * 8 < plain


def test_within_a_compiled_model(fit_compute, train, monkeypatch):
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._dynamo.reset()
    fitter = fit_compute(grad_checkpointing=True, compile="default")
    done = train(
        lambda: nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2))), steps=3
    )
    torch._dynamo.reset()
    assert all(each.acts for each in fitter.fitted) and not fitter.step_downs
    assert done.losses[-1] < done.losses[0]


def test_batch_norm_is_refused(fit_compute, train):
    def make():
        return nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(2)))

    fitter = fit_compute(grad_checkpointing=True)
    train(make, steps=1)
    assert "running averages would be updated twice" in only(fitter.fitted).reason


def test_without_blocks_it_is_refused(fit_compute, train):
    fitter = fit_compute(grad_checkpointing=True)
    train(lambda: nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), steps=1)
    assert "no row of blocks" in only(fitter.fitted).reason


def test_a_model_with_a_switch_of_its_own(fit_compute, train):
    class Own(Blocks):
        supports_gradient_checkpointing = True
        is_gradient_checkpointing = False

        def gradient_checkpointing_enable(self):
            self.is_gradient_checkpointing = True

        def gradient_checkpointing_disable(self):
            self.is_gradient_checkpointing = False

    fitter = fit_compute(grad_checkpointing=True)
    done = train(Own, steps=2)
    assert done.net.is_gradient_checkpointing
    fitter.undo()
    assert not done.net.is_gradient_checkpointing


def test_it_saves_no_time(compute_host, compute_timeline):
    knob = GradCheckpointing()
    assert knob.settings(compute_host(), compute_timeline()) == ()
    assert knob.ceiling(compute_timeline(), compute_host()) == pytest.approx(0.0)
