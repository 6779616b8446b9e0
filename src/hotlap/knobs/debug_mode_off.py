"""Turn switches for debugging off, also those that the script turns on later.

What it does
    Anomaly detection, deterministic algorithms, autograd's profiler (not `torch.profiler`, whose trace a script
    wants) and `CUDA_LAUNCH_BLOCKING` are turned off and stay off, whatever the script or its framework asks for.
    When it is undone, they are what the script has asked for by then.
When it helps
    One of them was left on: anomaly detection makes steps two to seven times as long.
What it costs
    A fault that the switch was to find is not found; with deterministic algorithms off, two runs may differ. In a
    running script, a profiler that is under way goes on, and CUDA has read `CUDA_LAUNCH_BLOCKING` already.
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
from hotlap.ports.target import Patches, Process, Seam, Undo, together
from hotlap.ports.values import Flag

_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class DebugModeOff(Knob):
    id = "debug-mode-off"
    relieves = frozenset({Cause.DEBUG_MODE_ON})
    seam = Seam.PROCESS
    numerics = Numerics.ROUNDING
    values = Flag()
    live = True

    def settings(self, host: Host, timeline: Timeline) -> tuple[bool, ...]:
        return (True,) if timeline.runtime.debug else ()

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        if not timeline.runtime.debug:
            return 0.0
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def apply(self, target: Process, setting: bool) -> Undo:
        from torch.autograd import profiler

        if not setting:
            return lambda: None
        wrap = target.patches.wrap
        undo: list[Undo] = [
            _anomaly_off(target.patches),
            _deterministic_off(target.patches),
            *(wrap(kind, "__init__", _disabled) for kind in (profiler.emit_nvtx, profiler.emit_itt)),
            wrap(profiler.profile, "__enter__", _without_profiling),
            _launches_freely(),
        ]
        return together(undo)


class _HeldOff:
    """A switch of torch that is held off. `wanted` is what the script has asked for: on or off, and how strictly."""

    def __init__(self, read: Callable[[], tuple[bool, bool]], turn: Callable[[bool, bool], None]) -> None:
        self.read, self.turn = read, turn
        self.wanted = read()
        if self.wanted[0]:
            turn(False, self.wanted[1])

    def put_back(self) -> None:
        if self.read() != self.wanted:
            self.turn(*self.wanted)

    def around(self, original: Callable[..., None]) -> Callable[..., None]:
        """A function of torch that turns it on or off."""

        @functools.wraps(original)
        def switched(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            self.wanted = self.read()
            self.turn(False, self.wanted[1])

        return switched

    def around_context(self, original: Callable[..., None]) -> Callable[..., None]:
        """It remembers what to go back to: not what it finds, but what it would find without this knob."""

        @functools.wraps(original)
        def built(context: Any, *args: Any, **kwargs: Any) -> None:
            before = self.wanted
            original(context, *args, **kwargs)
            context.prev, context.prev_check_nan = before

        return built


def _anomaly_off(patches: Patches) -> Undo:
    import torch
    from torch.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly

    def read() -> tuple[bool, bool]:
        return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()

    held = _HeldOff(read, torch.set_anomaly_enabled)
    # Both context managers of torch.autograd call the function by its name in torch.
    switch = patches.wrap(torch, "set_anomaly_enabled", held.around)
    contexts = [
        patches.wrap(each, "__init__", held.around_context) for each in (detect_anomaly, set_detect_anomaly)
    ]
    return together([held.put_back, switch, *contexts])


def _deterministic_off(patches: Patches) -> Undo:
    import torch

    use = torch.use_deterministic_algorithms

    def read() -> tuple[bool, bool]:
        return (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        )

    held = _HeldOff(read, lambda mode, warn_only: use(mode, warn_only=warn_only))
    names = "use_deterministic_algorithms", "set_deterministic_debug_mode"
    return together([held.put_back, *(patches.wrap(torch, name, held.around) for name in names)])


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
    """Read when CUDA starts, which is after this unless the script is running already."""
    before = os.environ.pop(_BLOCKING, None)
    return lambda: os.environ.update({_BLOCKING: before}) if before is not None else None
