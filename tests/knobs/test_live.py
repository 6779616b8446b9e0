"""Knobs put in place and taken away between two steps of a training: afterwards only what was trained differs."""

from __future__ import annotations

import gc

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters

from hotlap.knobs.compile import BACKEND
from hotlap.plan.catalogue import some_knobs
from hotlap.probe import boundary
from hotlap.seams import model, optimizer, process
from hotlap.seams.experiments import Switches

BLOCK = 5  # steps


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Tracing is the point here, not inductor, which takes seconds for each graph."""
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def fit_live():
    """`fit_live(precision="bf16-mixed")`: a fitter that has nothing in place yet and can switch these on."""
    fitters = []

    def fit(**settings):
        plan = {key.replace("_", "-"): value for key, value in settings.items()}
        fitter = Switches({}, some_knobs(plan))
        fitters.append(fitter)
        for seam in (process, model, optimizer):
            seam.install(fitter)
        return fitter

    yield fit
    for fitter in reversed(fitters):
        fitter.undo()
    faults = [*boundary.faults]
    boundary.faults.clear()
    assert not faults


def switches():
    """What is global in torch and in Python, and can be switched."""
    cudnn = torch.backends.cudnn
    return {
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "deterministic": torch.get_deterministic_debug_mode(),
        "cudnn": (cudnn.benchmark, cudnn.allow_tf32, cudnn.deterministic),
        "matmul": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "gc": (gc.get_threshold(), gc.isenabled(), gc.get_freeze_count()),
        "zero_grad": (torch.optim.Optimizer.zero_grad, nn.Module.zero_grad),
        "conv1d": nn.Conv1d._conv_forward,
        "set_num_threads": torch.set_num_threads,
    }


def of_module(net):
    """What is not trained: attributes, hooks, names, types and strides."""
    attributes = {
        name: (sorted(vars(each)), len(each._forward_hooks), len(each._forward_pre_hooks))
        for name, each in net.named_modules()
    }
    tensors = {name: (each.dtype, each.stride()) for name, each in net.state_dict().items()}
    return attributes, tensors


def of_optimizer(built):
    flags = [{key: value for key, value in group.items() if key != "params"} for group in built.param_groups]
    states = [
        {key: (value.dtype, value.device, value.stride()) for key, value in state.items()}
        for state in built.state.values()
    ]
    hooks = built._optimizer_step_pre_hooks, built._optimizer_state_dict_post_hooks
    return flags, states, sorted(vars(built)), [len(each) for each in hooks]


def saved(done):
    """What a checkpoint would hold, apart from the values."""
    return list(done.net.state_dict()), done.optimizer.state_dict()["param_groups"]


class Blocks:
    """Switches a plan on after the first block, off after the second, on again, and so forth."""

    def __init__(self, fitter, plan, build=torch.optim.AdamW):
        self.fitter, self.plan, self.build = fitter, plan, build
        self.steps = 0
        self.looks = []
        self.refused = ""
        self.meanwhile = lambda net: None

    def built(self, *args, **kwargs):
        self.optimizer = self.build(*args, **kwargs)
        return self.optimizer

    def __call__(self, net):
        self.steps += 1
        on = (self.steps - 1) // BLOCK % 2 == 1
        if on:
            self.meanwhile(net)
        else:
            self.looks.append((of_module(net), of_optimizer(self.optimizer), switches()))
        if self.steps % BLOCK == 0:
            self.refused = self.refused or self.fitter.switch({} if on else self.plan)


def small():
    first = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
    return nn.Sequential(first, nn.Sequential(nn.Dropout(0.1), nn.Linear(16, 4)))


def doubles():
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)).double()


def images():
    return nn.Sequential(
        nn.Unflatten(1, (2, 2, 2)),
        nn.Conv2d(2, 4, 2),
        nn.BatchNorm2d(4),
        nn.Flatten(2),
        nn.Conv1d(4, 4, 1),
        nn.Flatten(),
    )


class Cast(nn.Module):
    """Feeds float64 to what computes in it, as a script with a float64 model does."""

    def __init__(self):
        super().__init__()
        self.net = doubles()

    def forward(self, x):
        return self.net(x.to(self.net[0].weight.dtype))


class Taught(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(8, 4), nn.GELU()).requires_grad_(False)
        self.student = small()

    def forward(self, x):
        return self.student(x) - self.teacher(x)


def compiled():
    net = small()
    net.compile(backend="aot_eager")
    return net


CASES = [
    ("compile", "default", small),
    ("compile", "dynamic", small),
    ("compile", "frozen", Taught),
    ("compile", "off", compiled),
    ("grad-checkpointing", True, small),
    ("precision", "bf16-mixed", small),
    ("precision", "16-mixed", small),
    ("single-precision", True, Cast),
    ("channels-last", True, images),
    ("fused-optimizer", "fused", small),
    ("fused-optimizer", "foreach", small),
    ("set-to-none", True, small),
    ("gc-freeze", True, small),
    ("compute-threads", 2, small),
    ("debug-mode-off", True, small),
    ("keep-memory", True, small),
]


@pytest.mark.parametrize(("knob", "setting", "make"), CASES)
def test_nothing_of_it_is_left(fit_live, train, knob, setting, make):
    """Four blocks: as it is, under the setting, as it is, under the setting; then as it is."""
    plain = train(make, steps=BLOCK)
    fitter = fit_live(**{knob: setting})
    blocks = Blocks(fitter, {knob: setting})
    done = train(make, steps=4 * BLOCK + 3, build=blocks.built, each=blocks)
    assert not blocks.refused and not fitter.step_downs
    assert all(look == blocks.looks[0] for look in blocks.looks[1:])
    assert saved(done) == saved(plain)
    assert all(map(torch.isfinite, map(torch.tensor, done.losses)))


BIT_EQUAL = [
    case
    for case in CASES
    if case[0] in ("grad-checkpointing", "set-to-none", "gc-freeze", "debug-mode-off", "keep-memory")
]


@pytest.mark.parametrize(("knob", "setting", "make"), [*BIT_EQUAL, ("fused-optimizer", "foreach", small)])
def test_bit_equal_all_the_way(fit_live, train, knob, setting, make):
    plain = train(make, steps=4 * BLOCK + 3)
    blocks = Blocks(fit_live(**{knob: setting}), {knob: setting})
    assert train(make, steps=4 * BLOCK + 3, build=blocks.built, each=blocks).same_as(plain)
    assert not blocks.refused


@pytest.mark.parametrize("setting", ["default", "dynamic"])
def test_what_was_compiled_is_not_compiled_again(fit_live, train, setting):
    blocks = Blocks(fit_live(compile=setting), {"compile": setting})
    graphs = []
    blocks.meanwhile = lambda _: graphs.append(counters["stats"]["unique_graphs"])
    train(small, steps=6 * BLOCK, build=blocks.built, each=blocks)
    assert len(graphs) == 3 * BLOCK and set(graphs) == {1}


@pytest.fixture
def debugging():
    """A script that has left everything on."""
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.autograd.set_detect_anomaly(False)
    torch.use_deterministic_algorithms(False)


def test_debug_modes_that_are_on_are_turned_off_and_on_again(fit_live, train, debugging):
    blocks = Blocks(fit_live(debug_mode_off=True), {"debug-mode-off": True})
    on = []
    blocks.meanwhile = lambda _: on.append((torch.is_anomaly_enabled(), torch.get_deterministic_debug_mode()))
    train(steps=4 * BLOCK + 3, build=blocks.built, each=blocks)
    assert set(on) == {(False, 0)} and len(on) == 2 * BLOCK
    assert {look[2]["anomaly"] for look in blocks.looks} == {(True, False)}
    assert {look[2]["deterministic"] for look in blocks.looks} == {1}


@pytest.mark.parametrize("outside", [False, True])
def test_a_debug_mode_around_each_step(fit_live, outside):
    """It is switched inside of the script's own `with`, and undone there or outside of it."""
    fitter, seen = fit_live(debug_mode_off=True), []
    torch.autograd.set_detect_anomaly(outside)
    for step in range(4 * BLOCK):
        with torch.autograd.set_detect_anomaly(True):
            seen.append(torch.is_anomaly_enabled())
            if step == BLOCK:
                fitter.switch({"debug-mode-off": True})
            if step == 2 * BLOCK:
                fitter.switch({})
                assert torch.is_anomaly_enabled()
        if step == BLOCK:
            assert not torch.is_anomaly_enabled()
        if step == 3 * BLOCK:
            fitter.switch({"debug-mode-off": True})
            fitter.switch({})
            assert torch.is_anomaly_enabled() is outside
    assert seen == [True] * (BLOCK + 1) + [False] * BLOCK + [True] * (2 * BLOCK - 1)
    assert torch.is_anomaly_enabled() is outside
    torch.autograd.set_detect_anomaly(False)


def test_a_script_that_autocasts_is_known_between_two_steps(fit_live):
    """The script enters autocast for its forward only: at the end of a step nothing of it shows."""
    net, x = small(), torch.ones(4, 8)
    fitter = fit_live(precision="32")
    sgd = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = net(x)
        output.float().sum().backward()
        sgd.step()
        return output.dtype

    assert step() is torch.bfloat16
    assert "under autocast already" in fitter.switch({"precision": "bf16-mixed"})
    assert fitter.switch({"precision": "32"}) == "" and step() is torch.float32
    assert fitter.switch({}) == "" and step() is torch.bfloat16


@pytest.mark.parametrize("build", [torch.optim.AdamW, torch.optim.Adagrad, torch.optim.SGD])
def test_a_fused_step_goes_on_with_what_was_there(fit_live, train, build):
    """Momenta and counters that were made without it, and go on without it afterwards."""
    words = {"momentum": 0.9} if build is torch.optim.SGD else {}
    make = lambda *args, **kwargs: build(*args, **words, **kwargs)  # noqa: E731
    plain = train(steps=4 * BLOCK + 3, build=make)
    blocks = Blocks(fit_live(fused_optimizer="fused"), {"fused-optimizer": "fused"}, make)
    done = train(steps=4 * BLOCK + 3, build=blocks.built, each=blocks)
    assert not blocks.refused and all(look == blocks.looks[0] for look in blocks.looks[1:])
    assert done.apart_from(plain) < 1e-5


def test_counters_of_a_script_that_computes_in_float64(fit_live, train):
    torch.set_default_dtype(torch.float64)
    try:
        blocks = Blocks(fit_live(fused_optimizer="fused"), {"fused-optimizer": "fused"})
        train(steps=4 * BLOCK + 3, build=blocks.built, each=blocks)
    finally:
        torch.set_default_dtype(torch.float32)
    assert not blocks.refused and all(look == blocks.looks[0] for look in blocks.looks[1:])


def test_gradients_are_zeros_again_where_the_script_wants_zeros(fit_live, train):
    """Undone between `zero_grad` and backward: a parameter that gets no gradient then still has zeros."""
    fitter = fit_live(set_to_none=True)
    done = train(steps=2, set_to_none=False)
    fitter.switch({"set-to-none": True})
    done.net.zero_grad(set_to_none=False)
    assert all(each.grad is None for each in done.net.parameters())
    fitter.switch({})
    assert all(each.grad.count_nonzero() == 0 for each in done.net.parameters())


@pytest.mark.parametrize("knob", ["tf32", "cudnn-benchmark"])
def test_switches_of_cuda(fit_live, train, monkeypatch, knob):
    blocks = Blocks(fit_live(**{knob: True}), {knob: True})
    on = []
    blocks.meanwhile = lambda _: on.append(switches())
    with monkeypatch.context() as stand_in:
        stand_in.setattr(torch.cuda, "is_available", lambda: True)
        train(steps=4 * BLOCK + 3, build=blocks.built, each=blocks)
    assert not blocks.refused and all(look == blocks.looks[0] for look in blocks.looks[1:])
    assert all(look != blocks.looks[0][2] for look in on)


def test_a_fused_step_beside_hooks_of_the_scripts_own(fit_live, train):
    def build(*args, **kwargs):
        built = torch.optim.AdamW(*args, **kwargs)
        fitter.switch({"fused-optimizer": "fused"})
        built.register_step_pre_hook(lambda *_: None)
        return built

    fitter = fit_live(fused_optimizer="fused")
    assert train(build=build).optimizer.param_groups[0]["fused"]
