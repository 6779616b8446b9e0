"""The clock device for torch: `import clock_device` makes `clock` a device as `cuda` is one.

`plan()` says what work takes; the device's own record (`log`, `counts`) is the truth that tests compare with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))
import build

US, MS = 1_000, 1_000_000

_spec = importlib.util.spec_from_file_location(build.MODULE, build.built())
assert _spec is not None and _spec.loader is not None
_native: Any = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_native)

_initialized = False
log, counts, now, spend = _native.log, _native.counts, _native.now, _native.spend
device_count, current_device, set_device = _native.device_count, _native.current_device, _native.set_device


def plan(
    costs: Mapping[str, int] | None = None,
    *,
    planted: bool = True,
    devices: int = 2,
    launch: int = 0,
    other: int = 0,
    pinned: float = 0.0,
    pageable: float = 0.0,
    depth: int = 1024,
    memory: int = 1 << 34,
    logs: bool = False,
) -> None:
    """What work takes from now on: nanoseconds for each operator by its name, and for each byte of a copy."""
    _native.configure(
        planted=planted, devices=devices, launch=launch, other=other, pinned=pinned, pageable=pageable, depth=depth,
        memory=memory, logs=logs, costs={f"aten::{name}": cost for name, cost in (costs or {}).items()},
    )  # fmt: skip


def collective(cost: int, stream: Any = None) -> None:
    """Work of this length on a stream, such as an exchange with other devices."""
    here = stream if stream is not None else current_stream()
    _native.enqueue("collective", here.device_index, here.stream_id, cost)


# What torch asks of the module of a device ------------------------------------------------------------------------


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def synchronize(device: Any = None) -> None:
    torch.accelerator.synchronize(device)


def current_stream(device: Any = None) -> Any:
    return torch.accelerator.current_stream(device)


def get_device_name(device: Any = None) -> str:
    return "clock device"


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def manual_seed_all(seed: int) -> None:
    """Its operators draw from the host's generator, which has been seeded."""


manual_seed = manual_seed_all


def get_rng_state(device: Any = None) -> torch.Tensor:
    return torch.get_rng_state()


def set_rng_state(state: torch.Tensor, device: Any = None) -> None:
    torch.set_rng_state(state)


class device:  # as torch.cuda.device
    def __init__(self, index: Any) -> None:
        self._guard = torch.accelerator.device_index(
            torch.device(index).index if isinstance(index, str) else index
        )

    def __enter__(self) -> None:
        self._guard.__enter__()

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(*error)


@contextmanager
def stream(chosen: Any) -> Iterator[None]:
    """Work inside is queued on this stream."""
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(chosen)
    try:
        yield
    finally:
        torch.accelerator.set_stream(before)


torch.utils.rename_privateuse1_backend("clock")
torch._register_device_module("clock", sys.modules[__name__])
torch.utils.generate_methods_for_privateuse1_backend(for_storage=False)
plan()
