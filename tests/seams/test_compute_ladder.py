"""Losses that are not finite: which precision comes next, what is put back, and what is only told."""

from __future__ import annotations

import gc
import math

import pytest
import torch
from torch import nn

from hotlap.plan.catalogue import some_knobs
from hotlap.ports.target import Trainer
from hotlap.probe import boundary
from hotlap.seams.compute_ladder import ComputeFallbacks, LateFlags
from hotlap.seams.fitter import Fitter

PLANTED = 4  # the call at which the fault comes


class Faulty(nn.Module):
    """Finite in float32; `fault` says what happens at one call under autocast."""

    def __init__(self, fault, at=PLANTED):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.fault, self.calls, self.at = fault, 0, at

    def forward(self, x):
        self.calls += 1
        h = self.first(x)
        if self.calls == self.at:
            h = self.fault(h)
        return self.last(torch.relu(self.norm(h)))


def beyond_float16(h):
    """Through 1e5 and back: within the range of float32 and of bfloat16, beyond that of float16."""
    return nn.functional.linear(h, torch.eye(16) * 1e5) / 1e5


def beyond_16_bits(h):
    """Whatever overflows in 16 bits of either kind; float32 bears it."""
    return h * (torch.inf if torch.is_autocast_enabled("cpu") else 1.0)


def gradients_beyond(h):
    """The forward is finite and the gradients are not: they break the parameters, and the next loss shows it."""
    if torch.is_autocast_enabled("cpu"):
        h.register_hook(lambda gradient: gradient * torch.inf)
    return h


def broken(net):
    return [key for key, value in net.state_dict().items() if not torch.isfinite(value).all()]


def downs(fitter):
    return [(each.before, each.after, each.step, each.lost) for each in fitter.step_downs]


@pytest.fixture
def own_nan():
    """A test in which the script's own loss is told of."""
    yield
    assert any("left to the script" in each for each in boundary.faults)
    boundary.faults.clear()


def test_a_fault_in_the_range_of_float16_alone(fit_compute, train):
    fitter = fit_compute(precision="16-mixed")
    done = train(lambda: Faulty(beyond_float16), steps=10)
    assert downs(fitter) == [("16-mixed", "bf16-mixed", PLANTED, 0)]
    assert fitter.step_downs[0].reason == "the loss is not finite"
    assert fitter.settings == {"precision": "bf16-mixed"}
    assert not broken(done.net), "running averages that the fault broke are put back too"
    assert math.isnan(done.losses[PLANTED - 1]) and all(map(math.isfinite, done.losses[PLANTED:]))
    assert done.losses[-1] < done.losses[0]


def test_a_fault_of_the_very_first_step(fit_compute, train):
    """There is no earlier good state: running averages are put back as they were before it."""
    fitter = fit_compute(precision="16-mixed")
    done = train(lambda: Faulty(beyond_float16, at=1), steps=6)
    assert downs(fitter) == [("16-mixed", "bf16-mixed", 1, 0)]
    assert fitter.step_downs[0].reason == "the loss is not finite"
    assert not broken(done.net)
    assert all(map(math.isfinite, done.losses[1:]))


def test_the_same_fault_passes_in_bf16(fit_compute, train):
    fitter = fit_compute(precision="bf16-mixed")
    train(lambda: Faulty(beyond_float16), steps=6)
    assert downs(fitter) == []


def test_from_bf16_to_32_bits(fit_compute, train):
    fitter = fit_compute(precision="bf16-mixed")
    done = train(lambda: Faulty(beyond_16_bits), steps=8)
    assert downs(fitter) == [("bf16-mixed", "32", PLANTED, 0)]
    assert not broken(done.net)
    assert done.losses[-1] < done.losses[0]


def test_broken_parameters_go_back_to_the_last_good_state(fit_compute, train):
    fitter = fit_compute(precision="bf16-mixed")
    done = train(lambda: Faulty(gradients_beyond), steps=12)
    ((before, after, step, lost),) = downs(fitter)
    assert (before, after, step) == ("bf16-mixed", "32", PLANTED + 1), (
        "seen at the loss after the broken step"
    )
    assert 1 <= lost <= PLANTED
    assert not broken(done.net)
    assert done.losses[-1] < done.losses[0]


def test_a_state_is_not_good_before_its_loss_is_known(fit_compute):
    """A closure computes the loss inside of the step: what the step begins with may be broken already."""
    fitter = fit_compute(precision="bf16-mixed")
    torch.manual_seed(0)
    net, x = Faulty(gradients_beyond), torch.randn(16, 8)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)

    def closure():
        sgd.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(PLANTED + 4):
        sgd.step(closure)
    assert [each[:3] for each in downs(fitter)] == [("bf16-mixed", "32", PLANTED + 1)]
    assert not broken(net)


def test_gradients_that_overflow_in_float16_are_left_out_by_the_scale(fit_compute, train):
    fitter = fit_compute(precision="16-mixed")
    done = train(lambda: Faulty(gradients_beyond), steps=8)
    assert downs(fitter) == []
    assert not broken(done.net)


def test_gradients_that_overflow_at_every_scale(fit_compute, train):
    class Always(Faulty):
        def forward(self, x):
            self.calls = PLANTED - 1
            return super().forward(x)

    fitter = fit_compute(precision="16-mixed")
    train(lambda: Always(gradients_beyond), steps=17)
    assert downs(fitter)[0][:2] == ("16-mixed", "bf16-mixed")
    assert fitter.step_downs[0].reason == "gradients overflow at every loss scale"


def test_the_scripts_own_fault_is_told_once_and_left(fit_compute, train, capsys, own_nan):
    fitter = fit_compute(fused_optimizer="fused")
    done = train(lambda: Faulty(lambda h: h * torch.nan), steps=8)
    assert downs(fitter) == []
    assert broken(done.net), "hotlap mends what it has done itself, nothing else"
    said = capsys.readouterr().err
    assert said.count("the loss is not finite at step 4") == 1
    assert "hotlap has not lowered the precision" in " ".join(said.replace("hotlap:", "").split())


def test_a_fault_that_stays_in_32_bits_was_the_scripts(fit_compute, train, capsys, own_nan):
    class Ever(Faulty):
        def forward(self, x):
            return super().forward(x) * (torch.nan if self.calls >= PLANTED else 1.0)

    fitter = fit_compute(precision="16-mixed")
    train(lambda: Ever(lambda h: h), steps=8)
    assert [each[:3] for each in downs(fitter)] == [("16-mixed", "bf16-mixed", 4), ("bf16-mixed", "32", 5)]
    assert "in 32 bits either" in capsys.readouterr().err


class Reported:
    """A stand-in for a CUDA event: passed when the host has come one backward further."""

    def __init__(self):
        self.asked = 0

    def query(self):
        self.asked += 1
        return self.asked > 1


def test_on_a_device_the_answer_comes_a_step_later(fit_compute, train, monkeypatch):
    """There is no GPU here: losses on the CPU are sent through the same queue, with events of our own."""
    monkeypatch.setattr(LateFlags, "are_for", lambda self, loss: True)
    monkeypatch.setattr(LateFlags, "_sent", lambda self, flag: (flag.clone(), Reported()))
    fitter = fit_compute(precision="bf16-mixed")
    done = train(lambda: Faulty(beyond_16_bits), steps=12)
    ((_, after, step, lost),) = downs(fitter)
    assert (after, step) == ("32", PLANTED), "the step is that of the fault, not that of its discovery"
    assert lost >= 1, "the step after it was made with what it had broken"
    assert not broken(done.net)
    assert done.losses[-1] < done.losses[0]


def test_ranks_do_not_part_ways(fit_compute, train, monkeypatch, own_nan):
    """A stand-in for a job of two ranks: none of them decides by a loss of its own."""
    monkeypatch.setattr("hotlap.seams.compute_ladder._distributed", lambda: True)
    fitter = fit_compute(precision="bf16-mixed")
    train(lambda: Faulty(beyond_16_bits), steps=6)
    assert downs(fitter) == []


class Framework(Faulty):
    """Autocasts by itself, as it was told to."""

    def __call__(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.met = torch.is_autocast_enabled("cpu")
            return super().__call__(x).float()


def taken(fitter):
    fitter.trainer(Trainer("framework", {"precision": lambda setting: lambda: None}))
    return fitter


@pytest.mark.parametrize("fault", [beyond_16_bits, gradients_beyond])
def test_a_framework_that_has_taken_the_precision(fit_compute, train, fault):
    """Its autocast is lowered where it is entered."""
    fitter = taken(fit_compute(precision="bf16-mixed"))
    done = train(lambda: Framework(fault), steps=8)
    assert [each[:2] for each in downs(fitter)] == [("bf16-mixed", "32")]
    assert done.net.met is False
    assert not broken(done.net)


@pytest.mark.parametrize("plan", [{}, {"gc_freeze": True}])
def test_a_frameworks_own_scaler_gets_its_gradients(fit_compute, plan):
    """It leaves the step out by itself, and would fail without gradients to look at."""
    fitter = taken(fit_compute(precision="bf16-mixed", **plan))
    torch.manual_seed(0)
    net, scaler, x = Framework(beyond_16_bits), torch.amp.GradScaler("cpu"), torch.randn(16, 8)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)
    if plan:
        gc.freeze()  # as after its first steps
    for _ in range(PLANTED + 2):
        sgd.zero_grad()
        scaler.scale(net(x).square().mean()).backward()
        scaler.step(sgd)
        scaler.update()
    assert [each[:2] for each in downs(fitter)] == [("bf16-mixed", "32")]
    assert not broken(net)


def test_it_watches_only_where_numbers_may_change(fit_compute):
    assert not ComputeFallbacks.is_wanted(fit_compute(set_to_none=True, grad_checkpointing=True))
    assert ComputeFallbacks.is_wanted(fit_compute(compile="default"))
    settings = {"sum-over-tensor@train.py:3": "{}"}
    assert not ComputeFallbacks.is_wanted(Fitter(settings, some_knobs(settings)))
