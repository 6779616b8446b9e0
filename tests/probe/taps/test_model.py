"""The tap on root modules leaves no trace in what a script does with its model."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch
from torch import nn

from hotlap.probe import marks
from hotlap.probe.taps import model
from hotlap.probe.taps.root import RootTap

FORWARD = ["+FORWARD", "-FORWARD"]
EVAL_FORWARD = ["+EVAL_FORWARD", "-EVAL_FORWARD"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.inner(x)


@pytest.fixture
def tap(session):
    return model.install(session)


@pytest.fixture
def net(tap):
    torch.manual_seed(0)  # of some weights ReLU lets nothing through
    made = Net()
    tap.scan()
    return made


@pytest.fixture
def names(written):
    return lambda: [name for name, _ in written()]


def is_tapped(module):
    return isinstance(module.__dict__.get("_compiled_call_impl"), RootTap)


X = torch.ones(2, 4)


def test_a_call_of_the_root_is_one_forward_pass(net, names):
    assert torch.equal(net(X), net.forward(X))
    assert is_tapped(net)
    assert not any(is_tapped(child) for child in net.inner.modules())
    assert names() == FORWARD


def test_without_gradients_or_in_eval_mode_it_is_another_kind(net, names):
    with torch.no_grad():
        net(X)
    net.eval()
    net(X)
    assert names() == [*EVAL_FORWARD, str(marks.EVAL_ON), *EVAL_FORWARD]


def test_an_exception_of_the_model_passes_and_closes_the_mark(net, names):
    with pytest.raises(RuntimeError):
        net(torch.ones(2, 5))
    assert names() == FORWARD


def test_a_root_that_became_a_child_is_released(tap, net, names):
    outer = nn.Sequential(net)
    tap.scan()
    assert is_tapped(outer)
    assert not is_tapped(net)
    outer(X)
    assert names() == FORWARD


def test_train_and_eval_are_marked_once_though_they_recurse(net, names):
    net.eval()
    net.train()
    assert names() == [str(marks.EVAL_ON), str(marks.TRAIN_ON)]


def test_copies_start_without_a_tap(net):
    for twin in (copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))):
        assert not is_tapped(twin)
        assert torch.equal(twin(X), net(X))
    assert is_tapped(net)


def test_a_deepcopy_works_on_its_own_parameters(net):
    twin = copy.deepcopy(net)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    assert twin(X).sum() == 0
    assert net(X).sum() != 0


def test_a_module_that_pickles_its_whole_dict(tap):
    whole = Careless()
    tap.scan()
    assert is_tapped(whole)
    twin = pickle.loads(pickle.dumps(whole))
    assert torch.equal(twin(X), whole(X))


class Careless(Net):
    """Its `__getstate__` leaves nothing out, as some libraries write it."""

    def __getstate__(self):
        return dict(self.__dict__)

    def __setstate__(self, state):
        self.__dict__.update(state)


def test_a_saved_model_is_byte_for_byte_what_it_would_be(net):
    tapped, plain = io.BytesIO(), io.BytesIO()
    torch.save(net, tapped)
    net.__dict__.pop("_compiled_call_impl")
    torch.save(net, plain)
    assert tapped.getvalue() == plain.getvalue()


def test_state_dict_and_attributes_are_unchanged(tap):
    plain, tapped = Net(), Net()

    def traits(module):
        return list(module.state_dict()), [*dict(module.named_modules())], repr(module), {*dir(module)}

    before = traits(plain)
    tap.scan()
    assert is_tapped(tapped)
    assert traits(tapped) == before


def test_replicas_of_data_parallel_call_themselves(net):
    replica = net._replicate_for_data_parallel()
    assert not is_tapped(replica)
    assert is_tapped(net)


def test_a_replica_of_a_compiled_module_stays_compiled(net):
    net.compile(backend="eager")
    replica = net._replicate_for_data_parallel()
    assert replica.__dict__["_compiled_call_impl"] is net.__dict__["_compiled_call_impl"].compiled


def test_module_compile_is_listened_to_before_and_after(tap, names):
    early, late = Net(), Net()
    early.compile(backend="eager")
    compiled = early.__dict__["_compiled_call_impl"]
    tap.scan()
    late.compile(backend="eager")
    assert early.__dict__["_compiled_call_impl"].compiled is compiled
    early(X)
    late(X)
    assert [name for name in names() if "COMPILE" not in name] == FORWARD * 2
    for module in (early, late):
        tap.release(module)
        assert module.__dict__["_compiled_call_impl"] is not None, "compiled as the script left it"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_and_a_traced_model_still_work(net):
    assert torch.equal(torch.jit.trace(net, X)(X), net(X))
    assert torch.equal(torch.jit.script(net)(X), net(X))
    assert is_tapped(net)


def test_a_model_that_is_deleted_is_freed_at_once(tap):
    lone = Net()
    tap.scan()
    lone(X)
    tap.describe()
    gone = weakref.ref(lone)
    gc.disable()
    try:
        del lone
        assert gone() is None, "no cycle and no reference of the probe keeps it"
    finally:
        gc.enable()


def test_detaching_gives_the_model_back(session, tap):
    module = Net()
    tap.scan()
    session.detach()
    assert "_compiled_call_impl" not in module.__dict__
    assert nn.Module.train.__module__ == "torch.nn.modules.module"
    assert not hasattr(nn.Module.train, "__wrapped__")


def test_the_called_root_with_most_parameters_is_the_model(tap):
    small, large, uncalled = nn.Linear(2, 2), Net(), nn.Linear(100, 100)
    tap.scan()
    small(X[:, :2])
    large(X)
    tap.describe()
    assert tap.session.facts["model"]["kind"] == "Net"
    assert tap.session.facts["model"]["parameters"] == 20
    assert uncalled is not None


def test_a_root_that_was_called_and_then_wrapped_is_no_longer_described(tap, net):
    net(X)
    outer = nn.Sequential(net, nn.Linear(4, 4))
    tap.scan()
    outer(X)
    tap.describe()
    assert tap.session.facts["model"]["kind"] == "Sequential"
