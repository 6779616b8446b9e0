"""The compiled model is the same model; where the compiler does not work, the very forward is redone without it."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.utils import counters
from torch._inductor import config as inductor

from hotlap.knobs.compile import BACKEND, Compile


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Tracing is the point here, not inductor, which takes seconds for each graph."""
    monkeypatch.setenv(BACKEND, "aot_eager")
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.fixture
def backend(monkeypatch):
    """`backend(function)`: compiles with it from now on."""

    def use(function):
        name = f"planted_{id(function)}"
        torch._dynamo.register_backend(function, name)
        monkeypatch.setenv(BACKEND, name)

    return use


def noisy():
    """Moves random numbers and buffers on in its forward, so that one made twice would show."""
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 4))


def only(records):
    (record,) = records
    return record


def test_compiled_in_place(fit_compute, train):
    plain = train()
    fitter = fit_compute(compile="default")
    done = train()
    assert counters["stats"]["unique_graphs"] == 1
    assert only(fitter.fitted).acts and only(fitter.fitted).place == "Sequential"
    assert only(fitter.fitted).numerics == "statistical", "this network drops activations at random"
    assert done.same_as(plain), "the backend of this test fuses nothing"
    file = io.BytesIO()
    torch.save(done.net, file)
    file.seek(0)
    assert "_compiled_call_impl" not in vars(torch.load(file, weights_only=False))
    fitter.undo()
    assert "_compiled_call_impl" not in vars(done.net)


def test_under_the_precision_of_the_same_plan(fit_compute, train):
    """Autocast stands outside of the compiled call, whatever the order in the plan."""
    fitter = fit_compute(precision="bf16-mixed", compile="default")
    done = train(steps=3)
    assert counters["stats"]["unique_graphs"] == 1
    assert all(each.acts for each in fitter.fitted)
    assert done.outputs[0].dtype is torch.float32


def test_the_networks_of_a_lightning_module(fit_compute, train):
    class LightningModule(nn.Module):
        """By its name, as a strategy that wraps the whole module calls it."""

        def log(self, *_):
            print("logged")  # what the compiler must not meet

    class Task(LightningModule):
        def __init__(self):
            super().__init__()
            self.encoder, self.loss = noisy(), nn.CrossEntropyLoss()

        def forward(self, x):
            self.log("x", 1)
            return self.encoder(x)

    fitter = fit_compute(compile="default")
    net = train(Task, steps=2).net
    assert only(fitter.fitted).acts and not fitter.step_downs
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"]
    assert "_compiled_call_impl" in vars(net.encoder) and "_compiled_call_impl" not in vars(net)


@pytest.mark.parametrize("how", ["in place", "wrapped"])
def test_a_script_that_compiles_by_itself_is_left_alone(fit_compute, train, how):
    def make():
        net = noisy()
        if how == "wrapped":
            return torch.compile(net, backend="eager")
        net.compile(backend="eager")
        return net

    fitter = fit_compute(compile="default")
    train(make, steps=2)
    assert only(fitter.fitted).reason == "the script compiles it already"


@pytest.mark.parametrize("how", ["in place", "wrapped"])
def test_a_scripts_own_compiler_is_turned_off(fit_compute, train, how):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = noisy()

        def forward(self, x):
            return self.net(x)

    def make():
        net = Own()
        if how == "wrapped":
            return torch.compile(net, backend="eager")
        net.compile(backend="eager")
        return net

    plain = train(make)
    torch._dynamo.reset()
    counters.clear()
    fitter = fit_compute(compile="off")
    done = train(make)
    assert only(fitter.fitted).acts and counters["stats"]["unique_graphs"] == 0
    assert done.same_as(plain)
    fitter.undo()
    done.net(torch.ones(4, 8))
    assert counters["stats"]["unique_graphs"] == 1, "then it compiles again"


def test_off_where_nobody_compiles(fit_compute, train):
    fitter = fit_compute(compile="off")
    train(steps=1)
    assert only(fitter.fitted).reason == "the script does not compile it"


def test_sizes_that_change_compile_once_with_dynamic(fit_compute):
    """A script that has its model compiled for each size: the plan has it compiled for all."""
    net = torch.compile(nn.Linear(4, 4), dynamic=False, backend="eager")
    fitter = fit_compute(compile="dynamic")
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    for size in (3, 5, 7, 9):
        net(torch.ones(size, 4)).sum().backward()
        sgd.step()
    assert only(fitter.fitted).acts and not fitter.step_downs
    assert counters["stats"]["unique_graphs"] == 1


def test_a_backend_that_fails(fit_compute, train, backend):
    @backend
    def fails(graph, inputs):
        raise RuntimeError("no such instruction")

    plain = train(noisy)
    fitter = fit_compute(compile="default")
    assert train(noisy).same_as(plain), "nothing is lost and nothing was done twice"
    down = only(fitter.step_downs)
    assert (down.before, down.after, down.step, down.lost) == ("default", "off", 1, 0)
    assert "the compiler rejects it" in down.reason and "no such instruction" in down.reason
    assert fitter.settings == {"compile": "off"}


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute:UserWarning"
)  # the compiler's own, between two graphs
def test_what_the_compiler_rejects_half_way(fit_compute, train, backend):
    """The first half of the forward has run by then: its random numbers and running averages are put back."""
    graphs = []

    @backend
    def fails_at_the_second(graph, inputs):
        graphs.append(graph)
        if len(graphs) == 2:
            raise RuntimeError("out of registers")
        return graph.forward

    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = noisy(), nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4))

        def forward(self, x):
            h = self.first(x)
            torch._dynamo.graph_break()
            return self.second(h)

    plain = train(Halves)
    fitter = fit_compute(compile="default")
    assert train(Halves).same_as(plain)
    assert only(fitter.step_downs).reason.endswith("RuntimeError: out of registers")
    assert len(graphs) == 2


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # inductor's own, when it is imported
def test_a_compiler_that_is_not_there(fit_compute, train, monkeypatch):
    monkeypatch.delenv(BACKEND)
    plain = train()
    fitter = fit_compute(compile="default")
    with inductor.patch({"cpp.cxx": ("/nowhere/c++",), "fx_graph_cache": False}):
        assert train().same_as(plain)
    assert only(fitter.step_downs).after == "off"


def test_a_module_that_is_compiled_again_and_again(fit_compute, train):
    class Counting(nn.Linear):
        """A number of Python's that is another one at each call."""

        def __init__(self):
            super().__init__(8, 4)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x) * (1.0 + self.calls / 64)

    plain = train(Counting, steps=12)
    fitter = fit_compute(compile="default")
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=False):
        done = train(Counting, steps=12)
    down = only(fitter.step_downs)
    assert (down.after, down.reason) == ("off", "it was compiled anew at 8 calls")
    assert done.net.calls == 12 and done.apart_from(plain) < 1e-6


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_inductor_itself(fit_compute, train, monkeypatch):
    """Once with the real thing: rounding, marked as such."""
    monkeypatch.delenv(BACKEND)
    make = lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))  # noqa: E731
    plain = train(make, steps=3)
    fitter = fit_compute(compile="default")
    done = train(make, steps=3)
    assert only(fitter.fitted).numerics == "rounding" and not fitter.step_downs
    assert done.apart_from(plain) < 1e-4
    assert list(done.net.state_dict()) == list(plain.net.state_dict())


class Taught(nn.Module):
    """A student, and a teacher that does not train."""

    def __init__(self):
        super().__init__()
        self.teacher = nn.Sequential(nn.Linear(8, 4), nn.GELU())
        self.teacher.requires_grad_(False)
        self.student = noisy()

    def forward(self, x):
        return self.student(x) - self.teacher(x)


def test_only_what_does_not_train(fit_compute, train):
    plain = train(Taught)
    fitter = fit_compute(compile="frozen")
    done = train(Taught)
    assert counters["stats"]["unique_graphs"] == 1
    assert only(fitter.fitted).acts and only(fitter.fitted).numerics == "rounding", (
        "the student drops, not the teacher"
    )
    assert "_compiled_call_impl" in vars(done.net.teacher)
    assert not [each for each in (done.net, done.net.student) if "_compiled_call_impl" in vars(each)]
    assert done.same_as(plain), "the backend of this test fuses nothing"
    assert list(done.net.state_dict()) == list(plain.net.state_dict())
    fitter.undo()
    assert "_compiled_call_impl" not in vars(done.net.teacher)


def many():
    """As with adapters beside every layer."""
    net = nn.Sequential(*(nn.Linear(8, 8) for _ in range(20)), nn.Linear(8, 4))
    net[:20].requires_grad_(False)
    return net


@pytest.mark.parametrize(
    ("make", "reason"), [(noisy, "all of its modules train"), (many, "20 of its modules do not")]
)
def test_where_nothing_or_too_much_is_frozen(fit_compute, train, make, reason):
    fitter = fit_compute(compile="frozen")
    train(make)
    assert not only(fitter.fitted).acts and reason in only(fitter.fitted).reason
    assert not counters["stats"]["unique_graphs"]


def test_what_does_not_train_may_be_worth_a_try(compute_host, compute_timeline):
    timeline = compute_timeline()
    for parts, offered in ((0, ("default",)), (2, ("frozen", "default")), (17, ("default",))):
        model = replace(timeline.model, frozen_parts=parts)
        assert Compile().settings(compute_host(), replace(timeline, model=model)) == offered


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = Compile(), compute_host()
    assert knob.settings(host, compute_timeline()) == ("default",)
    assert knob.settings(host, compute_timeline(device="cuda")) == ("default", "reduce-overhead")
    assert knob.settings(host, compute_timeline(compiled=True)) == ()
    assert knob.settings(host, compute_timeline(compiled=True, recompiles=("size",))) == ("dynamic", "off")
    assert knob.settings(compute_host(compiler=None), compute_timeline()) == ()
    assert knob.values.read(True) == "default" and knob.values.read("off") == "off"
    assert knob.ceiling(compute_timeline(), host) == pytest.approx(0.8)
