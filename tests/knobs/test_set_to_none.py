"""Gradients are dropped instead of zeroed, and the optimizer sees the same all the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hotlap.knobs.set_to_none import SetToNone


class Sometimes(nn.Module):
    """Uses one of its layers in the first step only: after it, that layer's gradient is zero or missing."""

    def __init__(self):
        super().__init__()
        self.always, self.once, self.calls = nn.Linear(8, 4), nn.Linear(8, 4), 0

    def forward(self, x):
        self.calls += 1
        return self.always(x) + (self.once(x) if self.calls == 1 else 0.0)


def momentum(*args, **kwargs):
    return torch.optim.SGD(*args, momentum=0.9, weight_decay=0.1, **kwargs)


@pytest.mark.parametrize("build", [torch.optim.AdamW, momentum])
def test_bit_equal_also_where_a_gradient_is_missing(fit_compute, train, build):
    """With zeros, momentum and weight decay go on for a layer that is not used; with None they would stop."""
    plain = train(Sometimes, build=build, set_to_none=False)
    assert not plain.same_as(train(Sometimes, build=build)), "it makes a difference to this script"
    fit_compute(set_to_none=True)
    assert train(Sometimes, build=build, set_to_none=False).same_as(plain)


def test_a_script_that_drops_them_itself_keeps_its_way(fit_compute, train):
    plain = train(Sometimes, build=momentum)
    fit_compute(set_to_none=True)
    assert train(Sometimes, build=momentum).same_as(plain)


def test_the_gradients_are_gone(fit_compute, train):
    fitter = fit_compute(set_to_none=True)
    done = train(steps=1, set_to_none=False)
    done.net.zero_grad(False)
    assert all(each.grad is None for each in done.net.parameters())
    fitter.undo()
    done = train(steps=2, set_to_none=False)
    done.net.zero_grad(set_to_none=False)
    assert all(each.grad is not None for each in done.net.parameters())


def test_torchs_default_is_the_fast_way(compute_host, compute_timeline):
    assert SetToNone().settings(compute_host(), compute_timeline()) == ()
    assert SetToNone().ceiling(compute_timeline(), compute_host()) == pytest.approx(0.2)
