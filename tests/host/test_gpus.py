"""NVML is told by a stand-in for pynvml (conftest.py): there is no NVIDIA GPU where these tests run."""

from __future__ import annotations

import sys

import pytest

from hotlap.facts.host import Gpu
from hotlap.host.gpus import Nvml
from hotlap.host.looks import GpuLook

A100 = Gpu("NVIDIA A100-SXM4-80GB", 80 << 30, (8, 0), bf16=True, tf32=True, tensor_cores=True)
T4 = Gpu("Tesla T4", 16 << 30, (7, 5), bf16=False, tf32=False, tensor_cores=True)


def test_the_real_library_without_a_driver_finds_no_gpu(monkeypatch):
    pynvml = pytest.importorskip("pynvml")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        session = Nvml()
        assert session.describe() == ()
        assert session.look() == ()
        assert session.driver is None
        session.close()
    else:
        pytest.skip("this machine has an NVIDIA driver")


def test_without_the_library_there_is_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml().describe() == ()


def test_without_a_driver_there_is_no_gpu(nvml):
    nvml.has_driver = False
    assert Nvml().describe() == ()


def test_gpus_are_described_with_what_they_support(nvml):
    session = Nvml()
    assert session.describe() == (A100, T4)
    assert session.driver == "550.54"


@pytest.mark.parametrize(
    ("name", "capability", "bf16", "tensor_cores"),
    [
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), False, False),
        ("Tesla P100-PCIE-16GB", (6, 0), False, False),
        ("Tesla V100-SXM2-16GB", (7, 0), False, True),
        ("NVIDIA H100 80GB HBM3", (9, 0), True, True),
    ],
)
def test_support_follows_the_generation(nvml, name, capability, bf16, tensor_cores):
    nvml.gpus = nvml.gpus[:1]
    nvml.gpus[0].name, nvml.gpus[0].capability = name, capability
    (gpu,) = Nvml().describe()
    assert (gpu.bf16, gpu.tf32, gpu.tensor_cores) == (bf16, bf16, tensor_cores)


def test_names_in_bytes_of_older_libraries_are_read(nvml):
    nvml.gpus[1].name = b"Tesla T4"
    assert Nvml().describe()[1] == T4


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        ("0", (A100,)),
        ("1,0", (T4, A100)),
        ("GPU-bbbb", (T4,)),
        ("", ()),
        ("-1", ()),
        ("0,7,1", (A100,)),
        ("MIG-GPU-aaaa/1/0", (A100, T4)),
    ],
)
def test_only_gpus_that_the_job_may_see_are_counted(nvml, visible, gpus):
    assert Nvml({"CUDA_VISIBLE_DEVICES": visible}).describe() == gpus


def test_a_look_tells_busy_share_and_memory_by_process(nvml):
    nvml.gpus[0].processes = {4711: 9 << 30, 4712: None}
    assert Nvml().look() == (
        GpuLook(0.75, 10 << 30, {4711: 9 << 30, 4712: None}),
        GpuLook(0.25, 1 << 30, {}),
    )


def test_what_a_driver_does_not_tell_is_none_and_not_zero(nvml):
    nvml.unsupported = {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetMemoryInfo",
                        "nvmlDeviceGetComputeRunningProcesses"}  # fmt: skip
    assert Nvml().look()[0] == GpuLook(None, None, {})


def test_the_session_is_closed_and_then_tells_nothing(nvml):
    session = Nvml()
    assert nvml.sessions == 1
    session.close()
    session.close()
    assert nvml.sessions == 0
    assert session.look() == ()
