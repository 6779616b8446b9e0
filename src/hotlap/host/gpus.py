"""NVIDIA GPUs through the driver's own library (NVML): what they are, and what they are doing.

Nothing here touches CUDA, so no context is made and no memory of the GPU is taken. Where there is no driver,
no library or no GPU, there are simply no GPUs; what a driver does not tell is None.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from hotlap.facts.host import Gpu
from hotlap.host.looks import GpuLook

_GPU_IS_LOST = 15

WITHOUT_TENSOR_CORES = "GTX 16"
"""The Turing cards that lack them although their capability, 7.5, is that of cards that have them."""


HOLDS_BACK = {0x04: "power", 0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power"}
"""Reasons for a lower clock, by the driver's bits. That a GPU is idle, or its user has set a clock, is none."""


class Nvml:
    """A session with the driver. `devices` are those that CUDA_VISIBLE_DEVICES lets a job see."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._library = _start()
        self._environ = environ
        self._lost = False  # whether the GPU that was asked last is not there any more
        self.devices = self._visible_devices()

    def close(self) -> None:
        """End the session. The devices are gone with it."""
        if self._library is not None:
            self._ask("nvmlShutdown")
        self._library, self.devices = None, []

    @property
    def driver(self) -> str | None:
        """Version of the driver."""
        return _text(self._ask("nvmlSystemGetDriverVersion"))

    def describe(self) -> tuple[Gpu, ...]:
        """What each device is and supports."""
        return tuple(self._describe(device) for device in self.devices)

    def look(self) -> tuple[GpuLook, ...]:
        """What each device is doing."""
        return tuple(self._look(device) for device in self.devices)

    def _describe(self, device: Any) -> Gpu:
        name = _text(self._ask("nvmlDeviceGetName", device)) or "NVIDIA GPU"
        memory = self._ask("nvmlDeviceGetMemoryInfo", device)
        major, minor = self._ask("nvmlDeviceGetCudaComputeCapability", device) or (0, 0)
        return Gpu(
            name=name,
            memory_bytes=0 if memory is None else int(memory.total),
            capability=(major, minor),
            bf16=major >= 8,
            tf32=major >= 8,
            tensor_cores=major >= 7 and WITHOUT_TENSOR_CORES not in name,
        )

    def _look(self, device: Any) -> GpuLook:
        self._lost = False
        rates = self._ask("nvmlDeviceGetUtilizationRates", device)
        memory = self._ask("nvmlDeviceGetMemoryInfo", device)
        processes = self._ask("nvmlDeviceGetComputeRunningProcesses", device) or []
        return GpuLook(
            busy=None if rates is None else rates.gpu / 100,
            memory_used=None if memory is None else int(memory.used),
            memory_by_pid={each.pid: each.usedGpuMemory for each in processes},
            clock=self._clock(device),
            throttle=self._throttle(device),
            lost=self._lost,
        )

    def _clock(self, device: Any) -> float | None:
        """The multiprocessors' clock, of the highest that they have."""
        kind = getattr(self._library, "NVML_CLOCK_SM", 1)
        now = self._ask("nvmlDeviceGetClockInfo", device, kind)
        most = self._ask("nvmlDeviceGetMaxClockInfo", device, kind)
        return now / most if now is not None and most else None

    def _throttle(self, device: Any) -> frozenset[str] | None:
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            bits = self._ask(name, device)
            if bits is not None:
                return frozenset(reason for bit, reason in HOLDS_BACK.items() if bits & bit)
        return None

    def _visible_devices(self) -> list[Any]:
        count = self._ask("nvmlDeviceGetCount") or 0
        handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        wanted = self._environ.get("CUDA_VISIBLE_DEVICES")
        # A MIG slice has no utilisation of its own: then all whole GPUs are shown.
        if wanted is None or "MIG-" in wanted:
            return [handle for handle in handles if handle is not None]
        names = [_text(self._ask("nvmlDeviceGetUUID", handle)) or "" for handle in handles]
        picked = []
        for entry in wanted.split(","):
            index = _device_index(entry.strip(), names)
            if index is None:  # CUDA too stops at the first entry that names no device
                break
            picked.append(handles[index])
        return [handle for handle in picked if handle is not None]

    def _ask(self, function: str, *arguments: Any) -> Any:
        """The driver's answer, None where it has none."""
        if self._library is None:
            return None
        asked = getattr(self._library, function, None)  # older releases of the library lack some
        if asked is None:
            return None
        try:
            return asked(*arguments)
        except self._library.NVMLError as error:
            self._lost = self._lost or getattr(error, "value", None) == _GPU_IS_LOST
            return None


def _start() -> ModuleType | None:
    try:
        library = importlib.import_module("pynvml")
    except (ImportError, OSError):
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


def _device_index(entry: str, names: list[str]) -> int | None:
    """By number or by the start of the UUID. Numbers follow the bus, as with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    if entry.isdecimal():
        return int(entry) if int(entry) < len(names) else None
    return next((at for at, name in enumerate(names) if entry and name.startswith(entry)), None)


def _text(answer: Any) -> str | None:
    """Older versions of the library answer in bytes."""
    return answer.decode() if isinstance(answer, bytes) else answer
