"""A fault of the probe never stops or changes a training run, and is told."""

from __future__ import annotations

import signal

import pytest

from hotlap.probe import boundary


@pytest.fixture(autouse=True)
def no_faults():
    boundary.faults.clear()
    yield
    boundary.faults.clear()


def fail(value: int = 0) -> int:
    return 1 // value


def test_a_contained_function_returns_none_and_its_fault_is_told_with_its_place():
    assert boundary.contained(fail)() is None
    (fault,) = boundary.faults
    assert fault.startswith("fail: ZeroDivisionError: integer division or modulo by zero at ")
    assert "test_boundary.py:" in fault


def test_without_a_fault_the_value_passes():
    assert boundary.contained(fail)(1) == 1
    assert boundary.attempt(fail, 1) == 1
    assert boundary.faults == []


def test_a_fault_of_every_batch_is_told_a_few_times_only():
    for _ in range(1000):
        assert boundary.attempt(fail) is None
    assert 0 < len(boundary.faults) <= 20


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_script_is_no_fault(end):
    def leave() -> None:
        raise end

    with pytest.raises(end):
        boundary.attempt(leave)
    with pytest.raises(end):
        boundary.contained(leave)()
    assert boundary.faults == []


TRAIN = """
import hashlib, json, os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Planted(Exception): pass

def plant(owner, name):
    def broken(*args, **kwargs):
        raise Planted(name)
    setattr(owner, name, broken)

if os.environ.get("HOTLAP_PROBE"):
    import hotlap.probe.batch, hotlap.probe.portrait, hotlap.probe.sampler
    from hotlap.probe.taps import loader, model, optimizer, sync
    plant(hotlap.probe.batch, "path_to_tensor")
    plant(loader, "loader_portrait")
    plant(loader, "place_of_caller")
    plant(optimizer, "optimizer_portrait")
    plant(optimizer, "runtime_portrait")
    plant(model, "model_portrait")
    plant(model, "_module_kinds")
    plant(sync.SyncTap, "made")
    plant(hotlap.probe.sampler.Sampler, "_line_of")

torch.manual_seed(0)
data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
net = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Linear(16, 1))
sgd = torch.optim.Adam(net.parameters())
total = 0.0
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=16, shuffle=True):
        loss = (net(x) - y).square().mean()
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        total += loss.item()
torch.save(net, "net.pt")
values = [p.detach().numpy().tobytes() for p in net.parameters()] + [torch.get_rng_state().numpy().tobytes()]
print(json.dumps({"total": total, "hash": hashlib.sha256(b"".join(values)).hexdigest()}))
"""


def test_a_script_trains_to_the_same_parameters_though_every_tap_has_a_fault(run_script):
    watched, alone = run_script.both(TRAIN)
    assert watched.printed == alone.printed
    assert watched.stderr == alone.stderr == ""
    faults = "\n".join(watched.timeline.probe.faults)
    for planted in ("loader_portrait", "path_to_tensor", "_module_kinds", "optimizer_portrait", "made"):
        assert f"Planted: {planted}" in faults
    assert len(watched.timeline.steps) == 20, "what has no fault goes on"


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals as Unix knows them")
@pytest.mark.parametrize("way", [boundary.attempt, lambda function: boundary.contained(function)()])
def test_what_a_signal_handler_of_the_script_raises_is_passed_on(way):
    """A time limit by SIGALRM, say, that runs out while the probe is at work."""

    def handle(*_):
        raise TimeoutError("the script's own")

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(TimeoutError, match="the script's own"):
            way(lambda: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not boundary.faults
