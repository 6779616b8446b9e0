"""Mixed precision from outside: what the model computes in, what the script gets, and what is left alone."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from hotlap.knobs.precision import Precision, in_float32
from hotlap.ports.knob import Numerics
from hotlap.ports.values import NotAllowedError


class Spy(nn.Linear):
    """Tells what it was computed in."""

    def __init__(self):
        super().__init__(8, 4)
        self.dtypes = []

    def forward(self, x):
        result = super().forward(x)
        self.dtypes.append(result.dtype)
        return result


def record(fitter):
    (only,) = fitter.fitted
    return only


@pytest.mark.parametrize(("setting", "dtype"), [("16-mixed", torch.float16), ("bf16-mixed", torch.bfloat16)])
def test_the_model_computes_in_16_bits_and_the_script_sees_32(fit_compute, train, setting, dtype):
    plain = train(Spy)
    fitter = fit_compute(precision=setting)
    done = train(Spy)
    assert set(done.net.dtypes) == {dtype}
    assert {each.dtype for each in done.outputs} == {torch.float32}
    assert {each.dtype for each in done.net.parameters()} == {torch.float32}
    assert record(fitter).acts and record(fitter).numerics is Numerics.ROUNDING
    assert 0 < done.apart_from(plain) < 0.02
    assert f"torch.{vars(done.net)['_compiled_call_impl'].autocast}" == str(dtype), "what the probe reads"
    assert list(done.optimizer.state_dict()["state"][0]) == ["step", "exp_avg", "exp_avg_sq"]
    done.net.dtypes.clear()
    fitter.undo()
    done.net(torch.ones(1, 8))
    assert done.net.dtypes == [torch.float32] and "_compiled_call_impl" not in vars(done.net)


def test_validation_runs_in_it_too(fit_compute, train):
    fit_compute(precision="bf16-mixed")
    net = train(Spy, steps=2).net
    net.eval()
    with torch.no_grad():
        assert net(torch.ones(1, 8)).numpy().dtype == "float32"
    assert net.dtypes[-1] is torch.bfloat16


def test_gradients_of_both_networks_of_a_gan(fit_compute):
    """The generator's loss leads through the judge: both have gradients of their true size."""

    def gradients():
        torch.manual_seed(0)
        generator, judge = Spy(), nn.Linear(4, 1)
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.0) for each in (generator, judge)]
        for _ in range(2):
            for optimizer in optimizers:
                optimizer.zero_grad()
            judge(generator(torch.ones(2, 8))).mean().backward()
            for optimizer in optimizers:
                optimizer.step()
        return generator.weight.grad

    plain = gradients()
    fitter = fit_compute(precision="16-mixed")
    assert torch.allclose(gradients(), plain, rtol=1e-2)
    assert [each.place for each in fitter.fitted] == ["Spy", "Linear"]


def test_a_script_that_autocasts_is_left_alone(fit_compute, train):
    class Around(Spy):
        def __call__(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().__call__(x)

    fitter = fit_compute(precision="16-mixed")
    net = train(Around).net
    assert set(net.dtypes) == {torch.bfloat16}
    assert not record(fitter).acts and "under autocast already" in record(fitter).reason


def test_a_script_that_autocasts_inside_of_its_forward_is_left_alone(fit_compute, train):
    class Inside(Spy):
        @torch.autocast("cpu", dtype=torch.bfloat16)
        def forward(self, x):
            return super().forward(x)

    fitter = fit_compute(precision="bf16-mixed")
    done = train(Inside)
    assert not record(fitter).acts and "inside of its forward" in record(fitter).reason
    assert done.outputs[-1].dtype is torch.bfloat16, "from then on the script gets what it made"


def test_32_turns_a_scripts_autocast_off(fit_compute, train):
    class Around(Spy):
        def __call__(self, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return super().__call__(x)

    plain = train(Spy)
    fitter = fit_compute(precision="32")
    done = train(Around)
    assert record(fitter).acts
    assert done.same_as(plain)


def test_32_has_nothing_to_do_where_nobody_autocasts(fit_compute, train):
    fitter = fit_compute(precision="32")
    train(Spy, steps=1)
    assert "in 32 bits already" in record(fitter).reason


def test_a_model_in_16_bits_is_refused(fit_compute, train):
    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(8, 4).to(torch.bfloat16)

        def forward(self, x):
            return self.inner(x.bfloat16()).float()

    refused = fit_compute(precision="bf16-mixed")
    train(Half, steps=1)
    assert "torch.bfloat16 already" in record(refused).reason


@dataclass
class Output:
    scores: Any
    hidden: tuple[Any, ...]


Pair = namedtuple("Pair", "a b")


def test_whatever_holds_the_outputs():
    def low():
        return torch.ones(1, dtype=torch.bfloat16)

    whole = torch.ones(1, dtype=torch.int64)
    cast = in_float32(
        {"a": low(), "b": [low(), None], "c": Pair(low(), "x"), "d": Output(low(), (low(), whole))}
    )
    found = [cast["a"], cast["b"][0], cast["c"].a, cast["d"].scores, cast["d"].hidden[0]]
    assert {each.dtype for each in found} == {torch.float32}
    assert cast["d"].hidden[1] is whole and cast["b"][1] is None
    assert isinstance(cast["c"], Pair) and isinstance(cast["d"], Output)


def test_what_the_hardware_is_good_for(compute_host, compute_timeline):
    knob = Precision()
    plain, autocasts = compute_timeline(), compute_timeline(autocast="bfloat16")
    assert knob.settings(compute_host(), plain) == ()
    assert knob.settings(compute_host(), autocasts) == ("32",)
    assert knob.settings(compute_host(cpu_bf16=True), plain) == ("bf16-mixed",)
    assert knob.settings(compute_host(cpu_bf16=True), autocasts) == ()
    gpu = compute_timeline(device="cuda")
    assert knob.settings(compute_host(tensor_cores=True), gpu) == ("16-mixed",)
    assert knob.settings(compute_host(tensor_cores=True, bf16=True), gpu) == ("bf16-mixed", "16-mixed")
    assert knob.settings(compute_host(tensor_cores=False), gpu) == ()
    assert knob.ceiling(plain, compute_host()) == pytest.approx(0.8)


def test_spellings():
    values = Precision.values
    read = [values.read(each) for each in (32, "fp32", "bf16", "fp16", "bf16-mixed")]
    assert read == ["32", "32", "bf16-mixed", "16-mixed", "bf16-mixed"]
    with pytest.raises(NotAllowedError) as refusal:
        values.read("bf16-mixd")
    assert refusal.value.remedy == "did you mean 'bf16-mixed'?"
