"""What torch offers for a device. The modules here are stand-ins for devices, and for releases that offer less."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from hotlap.probe.accelerator import DeviceBackend, accelerator, in_use, of_kind


class Event:
    def __init__(self, enable_timing=False):
        self.enable_timing = enable_timing

    def synchronize(self):
        pass


@pytest.fixture
def torch_26(monkeypatch):
    """Its `torch.accelerator` names the device and knows nothing of memory."""

    def use(kind, module):
        monkeypatch.setattr(torch, kind, module, raising=False)
        general = SimpleNamespace(current_accelerator=lambda: SimpleNamespace(type=kind))
        monkeypatch.setattr(torch, "accelerator", general)

    return use


def test_the_cpu_is_none():
    assert of_kind("cpu") is None and of_kind("meta") is None and of_kind(None) is None
    assert of_kind("nosuchdevice") is None


def test_one_that_was_not_touched_is_not_in_use(torch_26):
    torch_26("xpu", SimpleNamespace(is_available=lambda: True, is_initialized=lambda: False))
    assert accelerator().kind == "xpu"
    assert in_use() is None


def test_a_device_without_a_driver_is_none(torch_26):
    torch_26("xpu", SimpleNamespace(is_available=lambda: False))
    assert accelerator() is None


def test_a_torch_without_torch_accelerator_is_asked_one_by_one(monkeypatch):
    monkeypatch.delattr(torch, "accelerator")
    for kind in ("cuda", "xpu", "mps"):
        module = SimpleNamespace(is_available=lambda kind=kind: kind == "mps")
        monkeypatch.setattr(torch, kind, module, raising=False)
    assert accelerator().kind == "mps"


def test_mps_names_its_memory_otherwise(torch_26):
    torch_26(
        "mps",
        SimpleNamespace(
            is_available=lambda: True, current_allocated_memory=lambda: 3, driver_allocated_memory=lambda: 4
        ),
    )
    allocated, reserved = in_use().memory
    assert (allocated(), reserved()) == (3, 4)
    assert in_use().free_and_total() is None
    assert in_use().current_stream(0) is None


def test_what_a_device_does_not_offer_is_not_made_up(torch_26):
    torch_26("npu", SimpleNamespace(is_available=lambda: True))
    found = accelerator()
    assert found.memory is None and found.free_and_total() is None
    assert found.is_capturing() is False and found.current_index() == 0
    assert found.name() == "npu" and found.waits == []
    found.random_states()()
    with pytest.raises(AttributeError):
        DeviceBackend("npu", found.module).event("npu:99999")


def test_its_waits_are_those_that_a_script_calls(torch_26):
    torch_26("npu", SimpleNamespace(is_available=lambda: True, synchronize=lambda: None, Event=Event))
    assert [(name, call) for _, name, call in accelerator().waits] == [
        ("synchronize", "npu.synchronize()"),
        ("synchronize", "Event.synchronize()"),
    ]


def test_random_states_are_put_back(torch_26):
    drawn = SimpleNamespace(state=[7])
    module = SimpleNamespace(
        is_available=lambda: True,
        get_rng_state_all=lambda: [*drawn.state],
        set_rng_state_all=lambda states: setattr(drawn, "state", states),
    )
    torch_26("npu", module)
    back = accelerator().random_states()
    drawn.state = [8]
    back()
    assert drawn.state == [7]
