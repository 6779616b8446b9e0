"""Switches for debugging stay off, whoever turns them on, and work again afterwards."""

from __future__ import annotations

import os

import pytest
import torch
from torch.autograd import profiler

from hotlap.knobs.debug_mode_off import DebugModeOff


@pytest.fixture
def off(monkeypatch, fit_compute):  # in this order: what the knob puts back is there no more afterwards
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    return fit_compute(debug_mode_off=True)


@pytest.mark.filterwarnings("ignore:Anomaly Detection:UserWarning")
def test_anomaly_detection(off):
    torch.autograd.set_detect_anomaly(True)
    assert not torch.is_anomaly_enabled()
    with torch.autograd.detect_anomaly(check_nan=False):
        assert not torch.is_anomaly_enabled()
    with torch.autograd.set_detect_anomaly(mode=True):
        assert not torch.is_anomaly_enabled()
    off.undo()
    assert torch.is_anomaly_enabled(), "as the script has asked for"
    torch.autograd.set_detect_anomaly(False)
    with torch.autograd.set_detect_anomaly(True):
        assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_enabled()


def test_deterministic_algorithms(off):
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.set_deterministic_debug_mode("error")
    assert not torch.are_deterministic_algorithms_enabled()
    off.undo()
    assert torch.get_deterministic_debug_mode() == 2, "as the script has asked for"
    torch.use_deterministic_algorithms(False)


def test_autograds_profiler_runs_empty(off):
    with profiler.profile() as seen:
        torch.ones(2) + 1
        assert not torch._C._autograd._profiler_enabled()
    assert "aten::add" not in seen.key_averages().table(), "its table is there, as the script prints it"
    off.undo()
    with profiler.profile() as seen:
        torch.ones(2) + 1
    assert "aten::add" in seen.key_averages().table()


def test_the_profiler_of_torch_is_left_alone(off):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        torch.ones(2) + 1
    assert "aten::add" in seen.key_averages().table()


def test_launches_do_not_block(off):
    assert "CUDA_LAUNCH_BLOCKING" not in os.environ
    off.undo()
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"


def test_a_training_under_anomaly_detection_is_the_same_without(fit_compute, train):
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        plain = train()
    fit_compute(debug_mode_off=True)
    with pytest.warns(UserWarning, match="Anomaly Detection"), torch.autograd.detect_anomaly():
        assert train().same_as(plain)


def test_where_it_is_worth_a_try(compute_host, compute_timeline):
    knob, host = DebugModeOff(), compute_host()
    on = compute_timeline(debug=("detect_anomaly",))
    assert knob.settings(host, on) == (True,)
    assert knob.settings(host, compute_timeline()) == ()
    assert knob.ceiling(on, host) == pytest.approx(0.8)
    assert knob.ceiling(compute_timeline(), host) == 0.0
