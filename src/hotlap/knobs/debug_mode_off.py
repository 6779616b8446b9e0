"""Turn switches for debugging off, also those that the script turns on later.

What it does
    Anomaly detection, deterministic algorithms, autograd's profiler (not `torch.profiler`, whose trace a script
    wants) and `CUDA_LAUNCH_BLOCKING` stay off, whatever the script or its framework asks for.
When it helps
    One of them was left on: anomaly detection makes steps two to seven times as long.
What it costs
    A fault that the switch was to find is not found; with deterministic algorithms off, two runs may differ.
Numerics
    None without deterministic algorithms; with them, faster kernels may add up in another order.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import Knob, Numerics
from hotlap.ports.target import Process, Seam, Undo, together
from hotlap.ports.values import Flag

_MOST_SAVED = 0.85  # of forward and backward: under anomaly detection steps were up to seven times as long
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class DebugModeOff(Knob):
    id = "debug-mode-off"
    relieves = frozenset({Cause.DEBUG_MODE_ON})
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    values = Flag()

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if timeline.runtime.debug else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        if not timeline.runtime.debug:
            return 0.0
        return _MOST_SAVED * summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Process, setting: bool) -> Undo:
        import torch
        from torch.autograd import profiler

        if not setting:
            return lambda: None
        wrap = target.patches.wrap
        undo: list[Undo] = [
            # Both context managers of torch.autograd call it by this name.
            wrap(torch, "set_anomaly_enabled", _never_on),
            wrap(torch, "use_deterministic_algorithms", _never_on),
            wrap(torch, "set_deterministic_debug_mode", _default_mode),
            *(wrap(kind, "__init__", _disabled) for kind in (profiler.emit_nvtx, profiler.emit_itt)),
            wrap(profiler.profile, "__enter__", _without_profiling),
            _launches_freely(),
        ]
        return together(undo)


def _never_on(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def switched(*args: Any, **kwargs: Any) -> None:
        kwargs.pop("mode", None)
        original(False, *args[1:], **kwargs)

    return switched


def _default_mode(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def switched(*_: Any, **__: Any) -> None:
        original("default")

    return switched


def _disabled(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("enabled", None)
        original(self, False, *args[1:], **kwargs)

    return built


def _without_profiling(original: Callable[..., Any]) -> Callable[..., Any]:
    """It runs and is read as usual, but for no longer than its own set-up: its tables are empty, not missing."""

    @functools.wraps(original)
    def entered(self: Any) -> Any:
        result = original(self)
        if self.enabled:
            self.__exit__(None, None, None)
            self.enabled = False
        return result

    return entered


def _launches_freely() -> Undo:
    """Read when CUDA starts, which is after this."""
    before = os.environ.pop(_BLOCKING, None)
    return lambda: os.environ.update({_BLOCKING: before}) if before is not None else None
