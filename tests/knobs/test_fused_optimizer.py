"""One pass over the parameters: what it does to the numbers, to checkpoints and to optimizers that cannot do it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from hotlap.facts.timeline import OptimizerFacts
from hotlap.knobs.fused_optimizer import FusedOptimizer
from hotlap.ports.knob import Numerics


def only(records):
    (record,) = records
    return record


def same(one, other):
    """State dicts of optimizers, to the last bit and key."""
    assert one["param_groups"] == other["param_groups"]
    assert one["state"].keys() == other["state"].keys()
    for key, state in one["state"].items():
        assert state.keys() == other["state"][key].keys()
        for name, value in state.items():
            theirs = other["state"][key][name]
            assert value.equal(theirs) and value.dtype == theirs.dtype, (key, name)


@pytest.mark.parametrize("build", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_fused_rounds_and_says_so(fit_compute, train, build):
    plain = train(build=build)
    fitter = fit_compute(fused_optimizer="fused")
    done = train(build=build)
    assert done.optimizer.param_groups[0]["fused"] is True
    assert only(fitter.fitted).numerics is Numerics.ROUNDING
    assert done.apart_from(plain) < 1e-5
    assert done.optimizer.state_dict()["param_groups"] == plain.optimizer.state_dict()["param_groups"]


def test_foreach_is_bit_equal(fit_compute, train):
    plain = train()
    fitter = fit_compute(fused_optimizer="foreach")
    done = train()
    assert done.optimizer.param_groups[0]["foreach"] is True
    assert only(fitter.fitted).numerics is Numerics.BITWISE
    assert done.same_as(plain)
    same(done.optimizer.state_dict(), plain.optimizer.state_dict())


def test_off_takes_it_from_a_script_that_has_it(fit_compute, train):
    plain = train(build=lambda *args, **kwargs: torch.optim.AdamW(*args, foreach=False, **kwargs))
    fit_compute(fused_optimizer="off")
    done = train(build=lambda *args, **kwargs: torch.optim.AdamW(*args, fused=True, **kwargs))
    assert done.same_as(plain)
    assert done.optimizer.state_dict()["param_groups"][0]["fused"] is True, "what is saved is the script's"


def test_it_survives_a_checkpoint_and_leaves_no_trace_in_one(fit_compute, train):
    saved = copy.deepcopy(train(steps=3).optimizer.state_dict())
    fit_compute(fused_optimizer="fused")
    done = train(steps=0)
    done.optimizer.load_state_dict(saved)
    assert done.optimizer.param_groups[0]["fused"] is True
    same(done.optimizer.state_dict(), saved)
    assert saved["param_groups"][0]["fused"] is None, "the script's own dictionary is not touched"
    alone = torch.optim.AdamW(done.net.parameters(), lr=0.01)
    done.net(torch.ones(4, 8)).sum().backward()
    done.optimizer.step()
    alone.load_state_dict(done.optimizer.state_dict())
    assert not alone.param_groups[0]["foreach"]


def test_a_group_that_comes_later(fit_compute, train):
    fitter = fit_compute(fused_optimizer="fused")
    done = train(steps=1)
    done.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "lr": 0.5})
    assert [each["fused"] for each in done.optimizer.state_dict()["param_groups"]] == [None, None]
    fitter.undo()
    assert done.optimizer.param_groups[0]["fused"] is None
    assert not done.optimizer._optimizer_state_dict_post_hooks
    assert not done.optimizer._optimizer_load_state_dict_pre_hooks


def test_sparse_gradients_are_refused_before_the_step_fails(fit_compute, train):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 4, sparse=True)

        def forward(self, x):
            return self.table(x[:, 0].abs().long())

    plain = train(Table, build=torch.optim.SGD)
    fitter = fit_compute(fused_optimizer="fused")
    done = train(Table, build=torch.optim.SGD)
    assert done.same_as(plain)
    assert only(fitter.fitted).acts is False and "sparse gradients" in only(fitter.fitted).reason


class OwnStep(torch.optim.AdamW):
    def step(self, closure=None):
        return super().step(closure)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (torch.optim.RMSprop, "RMSprop has no form that is fused"),
        (OwnStep, "OwnStep makes its step in its own way"),
        (lambda *args, **words: torch.optim.AdamW(*args, differentiable=True, **words), "has only the loop"),
    ],
)
def test_who_cannot_is_told(fit_compute, build, reason):
    fitter = fit_compute(fused_optimizer="fused")
    build([nn.Parameter(torch.ones(2))], lr=0.1)
    assert reason in only(fitter.fitted).reason


def test_parameters_that_no_fused_step_takes(fit_compute):
    fitter = fit_compute(fused_optimizer="fused")
    torch.optim.AdamW([nn.Parameter(torch.ones(2, device="meta"))])
    assert only(fitter.fitted).reason == "a fused step does not take torch.float32 on meta"


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = FusedOptimizer(), compute_host()
    loop, fused = OptimizerFacts("AdamW", 10, 100), OptimizerFacts("AdamW", 10, 100, fused=True)
    assert knob.settings(host, compute_timeline(optimizers=(loop,))) == ("fused", "foreach")
    assert knob.settings(host, compute_timeline(optimizers=(fused,))) == ()
    assert knob.settings(host, compute_timeline(optimizers=(OptimizerFacts("Lion", 10, 100),))) == ()
    assert knob.ceiling(compute_timeline(), host) == pytest.approx(0.2)
    assert [knob.values.read(each) for each in (True, "true", "foreach", False)] == [
        "fused",
        "fused",
        "foreach",
        "off",
    ]
