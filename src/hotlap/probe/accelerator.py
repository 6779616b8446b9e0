"""The accelerator that a script trains on, whichever it is, by what torch offers for every device.

`torch.accelerator` names it and `torch.get_device_module` is its module (`torch.cuda` also of ROCm, `torch.xpu`,
`torch.mps`, `torch.npu`, ...). Torch 2.6 knows less of it than later releases, devices differ, and a release to come
may know it otherwise: what is not offered is None here, or raises where it is used, and nothing is measured then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

_BUILT_IN = ("cuda", "xpu", "mps")  # asked one by one where `torch.accelerator` is missing


@dataclass(frozen=True)
class DeviceBackend:
    """One kind of device, such as `cuda`, and torch's module for it."""

    kind: str
    module: Any

    @property
    def initialized(self) -> bool:
        """Whether this process has used it; no driver is asked."""
        for name in ("is_initialized", "_is_initialized"):
            if callable(asked := getattr(self.module, name, None)):
                return bool(asked())
        known = getattr(self.module, "_initialized", None)
        return bool(known) if known is not None else self.available  # MPS has no such state

    @property
    def available(self) -> bool:
        return bool(self.module.is_available())

    def event(self, device: Any = None) -> Any:
        """A new event that takes the time; raises where the device has none."""
        if self.kind == "cuda":  # its own class is quicker than the one for all devices
            return self.module.Event(enable_timing=True)
        try:
            return torch.Event(device or self.kind, enable_timing=True)
        except (AttributeError, TypeError, RuntimeError, NotImplementedError):
            return self.module.Event(enable_timing=True)

    def passing_event(self) -> Any:
        """A new event that only says whether the device got there."""
        if self.kind == "cuda":
            return self.module.Event()
        try:
            return torch.Event(self.kind)
        except (AttributeError, TypeError, RuntimeError, NotImplementedError):
            return self.module.Event()

    @property
    def is_capturing(self) -> Callable[[], bool]:
        """Whether a graph is being captured: nothing may be recorded then."""
        return getattr(self.module, "is_current_stream_capturing", None) or (lambda: False)

    def current_stream(self, index: int) -> Any:
        """The stream that the calling thread queues work on; None where the device has no streams."""
        asked = getattr(self.module, "current_stream", None) or getattr(_general(), "current_stream", None)
        return asked(index) if asked is not None else None

    @property
    def current_index(self) -> Callable[[], int]:
        """The number of the device that the calling thread uses."""
        for owner, name in ((self.module, "current_device"), (_general(), "current_device_index")):
            if callable(asked := getattr(owner, name, None)):
                return lambda: int(asked())
        return lambda: 0

    @property
    def memory(self) -> tuple[Callable[[], int], Callable[[], int]] | None:
        """Bytes that tensors hold, and bytes that the allocator holds; None where it does not say."""
        pairs = (
            ("memory_allocated", "memory_reserved"),
            ("current_allocated_memory", "driver_allocated_memory"),  # as MPS names them
        )
        for owner in (self.module, _general()):
            for allocated, reserved in pairs:
                if hasattr(owner, allocated) and hasattr(owner, reserved):
                    return getattr(owner, allocated), getattr(owner, reserved)
        return None

    def free_and_total(self, index: int | None = None) -> tuple[int, int] | None:
        """Bytes of the device that are free, and all; None where it does not say."""
        arguments = () if index is None else (index,)
        for owner, name in ((self.module, "mem_get_info"), (_general(), "get_memory_info")):
            if callable(asked := getattr(owner, name, None)):
                free, total = asked(*arguments)
                return int(free), int(total)
        return None

    def name(self) -> str:
        """What the device calls itself, or what torch calls its kind."""
        asked = getattr(self.module, "get_device_name", None)
        return str(asked()) if callable(asked) else self.kind

    def random_states(self) -> Callable[[], None]:
        """Remembers where its random numbers are; the answer puts them back there."""
        if callable(read := getattr(self.module, "get_rng_state_all", None)):
            states, write = read(), self.module.set_rng_state_all
        elif callable(read := getattr(self.module, "get_rng_state", None)):
            states, write = read(), self.module.set_rng_state
        else:
            return lambda: None
        return lambda: write(states)

    @property
    def waits(self) -> list[tuple[Any, str, str]]:
        """(owner, name, how it is written) of the calls that wait for the device by intent."""
        found = [(self.module, "synchronize", f"{self.kind}.synchronize()")]
        if _general() is not None:
            found.append((_general(), "synchronize", "accelerator.synchronize()"))
        for name in ("Event", "Stream"):
            if isinstance(owner := getattr(self.module, name, None), type):
                found.append((owner, "synchronize", f"{name}.synchronize()"))
        return [each for each in found if callable(getattr(each[0], each[1], None))]


def accelerator() -> DeviceBackend | None:
    """The one that this torch can use, whether or not the script does; None on a machine without one."""
    found = of_kind(_kind())
    return found if found is not None and found.available else None


def in_use() -> DeviceBackend | None:
    """The one that this process has used so far. Nothing is initialised by asking, and no driver is asked."""
    found = of_kind(_kind(checked=False))
    return found if found is not None and found.initialized else None


def of_kind(kind: str | None) -> DeviceBackend | None:
    """By the name that torch has for its kind of device; None for the CPU and for what this torch does not know."""
    if kind is None or kind in ("cpu", "meta"):
        return None
    module = getattr(torch, kind, None)
    if module is None and hasattr(torch, "get_device_module"):
        try:
            module = torch.get_device_module(kind)
        except (RuntimeError, AttributeError):
            return None
    return None if module is None else DeviceBackend(kind, module)


def _kind(*, checked: bool = True) -> str | None:
    general = _general()
    if general is not None and hasattr(general, "current_accelerator"):
        device = general.current_accelerator()
        return None if device is None else str(device.type)
    for kind in _BUILT_IN:
        found = of_kind(kind)
        if found is not None and (found.available if checked else found.initialized):
            return kind
    return None


def _general() -> Any:
    return getattr(torch, "accelerator", None)
