"""TF32 and cuDNN's choice of algorithms. There is no GPU here: a stand-in says that there is one."""

from __future__ import annotations

import pytest
import torch

from hotlap.knobs.cudnn_benchmark import CudnnBenchmark
from hotlap.knobs.tf32 import Tf32


@pytest.fixture
def a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


def switches():
    cudnn = torch.backends.cudnn
    return torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("knob", ["tf32", "cudnn_benchmark"])
def test_without_a_gpu_it_is_refused(fit_compute, knob):
    before = switches()
    (record,) = fit_compute(**{knob: True}).fitted
    assert (record.acts, record.reason) == (False, "torch sees no CUDA device here")
    assert switches() == before


def test_tf32_comes_and_goes(fit_compute, a_gpu):
    before = switches()
    fitter = fit_compute(tf32=True)
    assert switches()[:2] == ("high", True)
    fitter.undo()
    assert switches() == before
    fit_compute(tf32=False)
    assert switches()[:2] == ("highest", False)


def test_a_script_with_the_newer_switches_is_left_alone(fit_compute, a_gpu, monkeypatch):
    def mixed():
        raise RuntimeError("mix of the legacy and new APIs")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    (record,) = fit_compute(tf32=True).fitted
    assert not record.acts and "fp32_precision" in record.reason


def test_the_benchmark_comes_and_goes(fit_compute, a_gpu):
    before = switches()
    fitter = fit_compute(cudnn_benchmark=True)
    assert torch.backends.cudnn.benchmark is True
    fitter.undo()
    assert switches() == before


def test_where_they_are_worth_a_try(compute_host, compute_timeline):
    on_gpu, host = compute_timeline(device="cuda"), compute_host(tf32=True)
    assert Tf32().settings(host, on_gpu) == (True,)
    assert Tf32().settings(host, compute_timeline()) == ()
    assert Tf32().settings(host, compute_timeline(device="cuda", tf32=True)) == ()
    assert Tf32().settings(compute_host(tf32=False), on_gpu) == ()
    assert Tf32().ceiling(on_gpu, host) == pytest.approx(0.8)
    assert CudnnBenchmark().settings(host, on_gpu) == (True,), "where nobody looked at the operators"
    assert CudnnBenchmark().settings(host, compute_timeline(device="cuda", ops=("aten::mm",))) == ()
    assert CudnnBenchmark().settings(host, compute_timeline(device="cuda", cudnn_benchmark=True)) == ()
    assert CudnnBenchmark().ceiling(on_gpu, host) == pytest.approx(0.8)
