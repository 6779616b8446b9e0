"""float64 that nobody needs: the model computes in float32, and the script sees what it saw before."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from hotlap.knobs.single_precision import SinglePrecision
from hotlap.ports.knob import Numerics
from hotlap.seams.compute_ladder import ComputeFallbacks
from hotlap.seams.model import target_of
from hotlap.seams.training import Training

HOUSES = Path(__file__).parents[1] / "planted" / "float64_compute.py"


def only(records):
    (record,) = records
    return record


class Double(nn.Module):
    """As from NumPy: parameters, running averages and inputs are float64."""

    def __init__(self):
        super().__init__()
        # Without a bias: before a norm its gradient is rounding alone, which Adam would blow up.
        self.inner = nn.Sequential(
            nn.Linear(8, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 4)
        ).double()
        self.seen = []

    def forward(self, x):
        self.seen.append(x.dtype)
        return self.inner(x)


class Fed(nn.Module):
    """A script's own root, which is fed float64 whatever the fixture's loop makes."""

    def __init__(self, make=Double):
        super().__init__()
        self.root = make()

    def forward(self, x):
        return self.root(x)

    def __call__(self, x):
        return super().__call__(x.double())


class Coded(nn.Module):
    """Frozen float64 codes in a float32 model, as NeMo's quantizer has them."""

    def __init__(self):
        super().__init__()
        self.layer, self.last = nn.Linear(8, 6), nn.Linear(7, 4)
        self.codes = nn.Parameter(torch.randn(32, 6, dtype=torch.float64), requires_grad=False)
        self.computed = []

    def forward(self, x):
        hidden = self.layer(x)
        distances = (hidden.detach().unsqueeze(1) - self.codes).norm(dim=-1)
        self.computed.append(distances.dtype)
        return self.last(torch.cat([hidden, distances.argmin(1, keepdim=True) / 32.0], 1))


class MakesItsOwn(Double):
    """A forward that makes a float64 tensor where float32 is what it meets."""

    def forward(self, x):
        return super().forward(x @ torch.eye(8, dtype=torch.float64))


@pytest.mark.parametrize("fused", [True, False])
def test_the_same_training_by_rounding(fit_compute, train, fused):
    def build(*args, **kwargs):
        return torch.optim.AdamW(*args, fused=fused, **kwargs)

    plain = train(Fed, build=build)
    fitter = fit_compute(single_precision=True)
    done = train(Fed, build=build)
    assert set(done.net.root.seen) == {torch.float32} and only(fitter.fitted).numerics is Numerics.ROUNDING
    assert {each.dtype for each in done.outputs} == {torch.float64}, "the loss is computed as before"
    assert 0 < done.apart_from(plain) < 1e-4
    states = [each for kept in done.optimizer.state.values() for each in kept.values() if each.dim()]
    assert {each.dtype for each in states} == {torch.float32}
    other = Fed()
    other.load_state_dict(done.net.state_dict())
    assert other.root.inner[0].weight.dtype is torch.float64
    fitter.undo()
    floats = [*done.net.parameters(), *(each for each in done.net.buffers() if each.is_floating_point())]
    assert {each.dtype for each in floats} == {torch.float64}


def test_it_comes_and_goes_between_steps(fit_compute, train):
    """As a search tries it: optimizers keep float64 by then, and gradients of the last step are still there."""
    plain = train(Fed, steps=4)
    fitter, training, undo = fit_compute(), Training(), []
    training.listen(fitter)

    def each(net):
        if len(net.root.seen) == 2:
            target = target_of(fitter, net, training, ComputeFallbacks(fitter, training))
            undo.append(SinglePrecision().apply(target, True))
        elif len(net.root.seen) == 3:
            undo.pop()()

    done = train(Fed, steps=4, each=each, set_to_none=False)
    assert done.net.root.seen == [torch.float64] * 2 + [torch.float32] + [torch.float64]
    assert 0 < done.apart_from(plain) < 1e-4


def test_frozen_codes_in_a_float32_model(fit_compute, train):
    plain = train(Coded)
    codes = plain.net.codes.detach().clone()
    fitter = fit_compute(single_precision=True)
    done = train(Coded)
    assert (plain.net.computed[-1], done.net.computed[-1]) == (torch.float64, torch.float32)
    assert {each.dtype for each in done.outputs} == {torch.float32}
    assert done.apart_from(plain) < 1e-4
    fitter.undo()
    assert done.net.codes.equal(codes), "bit for bit as they were: they do not train"


def test_the_scripts_batch_stays_as_it_is(fit_compute):
    class Reads(Double):
        def forward(self, batch):
            return {"out": [super().forward(batch["x"])]}

    fit_compute(single_precision=True)
    net, batch = Reads(), {"x": torch.randn(4, 8, dtype=torch.float64)}
    torch.optim.SGD(net.parameters(), lr=0.1)
    out = net(batch)["out"][0]
    assert net.seen == [torch.float32]
    assert batch["x"].dtype is out.dtype is torch.float64


def test_a_forward_that_does_not_bear_it_is_redone(fit_compute, train):
    plain = train(lambda: Fed(MakesItsOwn))
    fitter = fit_compute(single_precision=True)
    done = train(lambda: Fed(MakesItsOwn))
    assert done.same_as(plain), "nothing is lost and nothing was done twice"
    down = only(fitter.step_downs)
    assert (down.knob, down.after) == ("single-precision", False)
    assert "dtype" in down.reason


def test_without_float64_it_is_refused(fit_compute, train):
    fitter = fit_compute(single_precision=True)
    train(steps=1)
    assert only(fitter.fitted).reason == "none of its parameters and buffers is float64"


def test_gradients_that_ranks_exchange_stay_as_they_are_laid_out(fit_compute, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        fitter = fit_compute(single_precision=True)
        net = nn.parallel.DistributedDataParallel(Double())
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net(torch.randn(4, 8, dtype=torch.float64)).sum().backward()
        optimizer.step()
        assert "laid out already" in only(fitter.fitted).reason
    finally:
        torch.distributed.destroy_process_group()


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host, single = SinglePrecision(), compute_host(), compute_timeline()
    double = replace(single, model=replace(single.model, dtypes=("float32", "float64")))
    assert (knob.settings(host, double), knob.settings(host, single)) == ((True,), ())
    assert knob.ceiling(double, host) == pytest.approx(0.8)
    assert knob.ceiling(single, host) == 0.0


def test_an_unmodified_script_trains_in_float32(tmp_path):
    """House prices from NumPy, whose loss it also computes outside of the model, in float64."""
    command = [sys.executable, "-m", "hotlap", "run", "--set", "single-precision=true"]
    done = subprocess.run(
        [*command, "--out", "run", HOUSES], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    applied = json.loads((tmp_path / "run/applied.json").read_text())
    assert applied["settings"] == {"single-precision": True} and not applied["step_downs"]
