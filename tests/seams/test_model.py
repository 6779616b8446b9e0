"""The root modules are found at their first training forward, and nothing of the search is left after it."""

from __future__ import annotations

import copy
import gc
import io
import time
import weakref

import pytest
import torch
from torch import nn

from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Seam
from hotlap.ports.values import Flag
from hotlap.probe import control
from hotlap.probe.session import Session
from hotlap.probe.taps import model as tap
from hotlap.probe.taps.root import RootTap
from hotlap.seams import model
from hotlap.seams.fitter import Fitter

TORCHS_CALL = nn.Module.__call__


class Count(Knob):
    """Counts the calls of each root."""

    id = "count"
    seam = Seam.MODEL
    numerics = Numerics.BITWISE
    values = Flag()
    relieves = frozenset()

    def __init__(self):
        self.roots, self.calls, self.search = [], [], []

    def settings(self, host, timeline):
        return ()

    def ceiling(self, timeline, host):
        return 0.0

    def apply(self, target, setting):
        self.roots.append(type(target.module).__name__)
        calls, search = self.calls, self.search

        def counted(call, *args, **kwargs):
            calls.append(type(call).__name__)
            search.append(nn.Module.__call__ is TORCHS_CALL)
            return call(*args, **kwargs)

        return target.reach.around(target.module, counted)


class Generator(nn.Linear):
    pass


class Judge(nn.Sequential):
    pass


@pytest.fixture
def count():
    knob = Count()
    fitter = Fitter({"count": True}, {"count": knob})
    model.install(fitter)
    knob.fitter = fitter
    yield knob
    fitter.undo()
    assert nn.Module.__call__ is TORCHS_CALL


def test_the_root_is_found_once_and_neither_its_parts_nor_the_loss(count, train):
    done = train(steps=4)
    assert count.roots == ["Sequential"]
    assert len(count.calls) == 4, "the first forward already runs inside of what a knob has put around it"
    assert all(count.search), "torch's own function is in place while a root runs"
    assert nn.Module.__call__ is TORCHS_CALL, "and after the search"
    assert list(done.net.state_dict()) == ["0.0.weight", "0.0.bias", "1.1.weight", "1.1.bias"]


def test_the_same_training_without_it(count, train):
    counted = train()
    count.fitter.undo()
    assert train().same_as(counted)
    assert "_compiled_call_impl" not in vars(counted.net)


def test_both_networks_of_a_gan_although_one_is_called_late(count):
    generator, judge = Generator(4, 4), Judge(nn.Linear(4, 1))
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (generator, judge)]
    for _ in range(2):
        with torch.no_grad():  # the judge's turn
            fake = generator(torch.randn(2, 4))
        judge(fake).mean().backward()
        optimizers[1].step()
        judge(generator(torch.randn(2, 4))).mean().backward()
        optimizers[0].step()
    assert count.roots == ["Judge", "Generator"]
    assert nn.Module.__call__ is TORCHS_CALL


def test_a_forward_in_eval_mode_is_no_training(count, train):
    net = nn.Linear(4, 4)
    torch.optim.SGD(net.parameters(), lr=0.1)
    net.eval()
    net(torch.zeros(1, 4))
    assert count.roots == []


def test_a_second_model_of_the_next_fold(count, train):
    train(steps=7)
    train(steps=2)
    assert count.roots == ["Sequential"] * 2
    assert len(count.calls) == 9


def test_steps_made_by_hand(count):
    net = Generator(4, 1)
    for _ in range(3):
        net(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            for each in net.parameters():
                each -= 0.1 * each.grad
    assert count.roots == ["Generator"]


def test_recomputed_parts_are_no_roots(count):
    from torch.utils.checkpoint import checkpoint

    net = nn.ModuleList([Generator(4, 4), Judge(nn.Linear(4, 4))])

    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return net[1](checkpoint(net[0], x, use_reentrant=False))

    root = Whole()
    optimizer = torch.optim.SGD(root.parameters(), lr=0.1)
    root(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    assert count.roots == ["Whole"]


def test_a_model_that_the_script_lets_go_is_gone(count, train):
    held = weakref.ref(train(steps=2).net)
    gc.collect()
    assert held() is None


def test_copies_pickles_and_scripts_are_as_without(count, train):
    net = train(steps=2).net
    calls = len(count.calls)
    copied = copy.deepcopy(net)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    with pytest.warns(DeprecationWarning):
        scripted = torch.jit.script(net)
    for each in (copied, loaded, scripted):
        each.eval()
        each(torch.randn(2, 8))
    assert len(count.calls) == calls, "none of them calls back into what was put around the original"
    net(torch.randn(2, 8))
    assert len(count.calls) == calls + 1


def test_a_replica_of_data_parallel_calls_itself(count, train):
    net = train(steps=1).net
    replica = net._replicate_for_data_parallel()
    assert replica.__dict__["_compiled_call_impl"] is None


@pytest.mark.parametrize("probe_first", [True, False])
def test_beside_the_probes_tap(count, tmp_path, probe_first):
    """The tap stays outermost, so its time is the whole forward; what is no compiler is not taken for one."""
    control.create(tmp_path)
    session = Session(tmp_path, time.perf_counter_ns())
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    tapped = tap.ModelTap(session)
    if probe_first:
        tapped.hold(net)
    net(torch.ones(1, 4)).sum().backward()
    if not probe_first:
        tapped.hold(net)
    optimizer.step()
    net(torch.ones(1, 4))
    assert isinstance(vars(net)["_compiled_call_impl"], RootTap)
    assert len(count.calls) == 2
    tapped.describe()
    assert session.facts["model"]["compiled"] is False
    count.fitter.undo()
    tapped.release_all()
    session.detach()
    assert "_compiled_call_impl" not in vars(net)


def test_a_compiled_function_of_the_script_is_one_graph_during_the_search(count):
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    step = torch.compile(lambda x: net(x).sum(), fullgraph=True, backend="eager")
    for _ in range(2):
        step(torch.ones(2, 4)).backward()
        optimizer.step()
    assert count.roots == [], "the compiler's own calls are no forward of the script"


def test_an_empty_plan_patches_nothing():
    before = torch.autograd.backward, torch.optim.Optimizer.__init__
    model.install(Fitter({}, {}))
    assert (torch.autograd.backward, torch.optim.Optimizer.__init__) == before
