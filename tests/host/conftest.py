"""A stand-in for the NVIDIA driver's library."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace

import pytest


class FakeNvml(ModuleType):
    """Answers as nvidia-ml-py does, from plain data: there is no NVIDIA GPU where these tests run."""

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.gpus: list[SimpleNamespace] = []
        self.driver: str | bytes = "550.54"
        self.has_driver = True
        self.sessions = 0
        self.unsupported: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., object]:
        answers: dict[str, Callable[..., object]] = {
            "nvmlSystemGetDriverVersion": lambda: self.driver,
            "nvmlDeviceGetCount": lambda: len(self.gpus),
            "nvmlDeviceGetHandleByIndex": lambda index: self.gpus[index],
            "nvmlDeviceGetName": lambda gpu: gpu.name,
            "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
            "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(total=gpu.total, used=gpu.used),
            "nvmlDeviceGetCudaComputeCapability": lambda gpu: gpu.capability,
            "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.percent, memory=0),
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
                SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in gpu.processes.items()
            ],
        }
        if name not in answers:
            raise AttributeError(name)

        def answer(*arguments: object) -> object:
            if name in self.unsupported or self.sessions < 1:
                raise self.NVMLError(f"{name}: not supported")
            return answers[name](*arguments)

        return answer

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise self.NVMLError("NVML Shared Library Not Found")
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """The stand-in, found by `import pynvml`, with an A100 and a T4 in it."""
    fake = FakeNvml()
    fake.gpus = [
        SimpleNamespace(name="NVIDIA A100-SXM4-80GB", uuid="GPU-aaaa-1", total=80 << 30, used=10 << 30,
                        capability=(8, 0), percent=75, processes={}),
        SimpleNamespace(name="Tesla T4", uuid="GPU-bbbb-2", total=16 << 30, used=1 << 30,
                        capability=(7, 5), percent=25, processes={}),
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return fake
