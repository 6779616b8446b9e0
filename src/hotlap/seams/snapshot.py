"""The last good state of models and optimizers, kept within a share of the run's time and of free memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any
from weakref import ref

import torch

from hotlap.probe.accelerator import of_kind

_BUDGET = 0.01  # of the time that a run takes
_MOST_MEMORY = 0.25  # of what is free on the device that holds the state


class Snapshot:
    """Copies of parameters, buffers and optimizer state. Random numbers are not wound back: the loop is not either.

    What was copied is held weakly: a model that the script lets go, of an earlier fold, say, must go.
    """

    def __init__(self, modules: Iterable[Any], optimizers: Iterable[Any], step: int) -> None:
        self.step = step
        known = list(optimizers)
        self._parameters = [_Copy(each) for each in _parameters(modules, known)]
        self._buffers = [_Copy(each) for module in modules for each in module.buffers()]
        self._states = [(ref(each), [_StateCopy(*entry) for entry in each.state.items()]) for each in known]

    def restore(self) -> bool:
        """Put back what is broken: buffers alone where every parameter is finite. True if all of it was."""
        broken = not all(each.is_finite() for each in self._parameters)
        for buffer in self._buffers:
            if broken or not buffer.is_finite():
                buffer.put_back()
        if broken:
            for parameter in self._parameters:
                parameter.put_back()
            for held, states in self._states:
                optimizer = held()
                if optimizer is not None:
                    optimizer.state.clear()
                    optimizer.state.update(entry for state in states for entry in state.entry())
        return broken


class _Copy:
    """Of one parameter or buffer."""

    def __init__(self, live: torch.Tensor) -> None:
        self._live = ref(live)
        self._good = live.detach().clone()

    def is_finite(self) -> bool:
        live = self._live()
        return live is None or _finite(live)

    def put_back(self) -> None:
        live = self._live()
        if live is not None:
            # By way of `.data`: a graph that the script still holds would refuse to pass back through a changed tensor.
            live.data.copy_(self._good)
            if live.requires_grad:
                live.grad = None


class _StateCopy:
    """Of what an optimizer keeps for one parameter."""

    def __init__(self, parameter: torch.Tensor, state: dict[str, Any]) -> None:
        self._parameter = ref(parameter)
        self._state = _copied(state)

    def entry(self) -> list[tuple[Any, dict[str, Any]]]:
        parameter = self._parameter()
        return [] if parameter is None else [(parameter, _copied(self._state))]


class Keeper:
    """Takes a snapshot when it can be afforded: one that took t seconds is replaced after t / budget seconds.

    On a device whose answers come late, a snapshot is only known to be good once the loss of its step is.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.good: Snapshot | None = None
        self._waiting: Snapshot | None = None
        self._untrained: list[_Copy] = []
        self._clock = clock
        self._due = 0.0

    def met(self, module: Any) -> None:
        """Before its first forward: what the very first loss breaks has no other good state."""
        if self.good is None:
            self._untrained += [_Copy(each) for each in module.buffers()]

    def restore(self) -> bool | None:
        """As `Snapshot.restore`. Without a good state buffers alone come back, as they were at first: None."""
        if self.good is not None:
            return self.good.restore()
        for buffer in self._untrained:
            if not buffer.is_finite():
                buffer.put_back()
        return None

    def look(self, modules: list[Any], optimizers: list[Any], step: int) -> None:
        """Called before each step, when its parameters are those that the loss came from."""
        now = self._clock()
        if now < self._due or self._waiting is not None:
            return
        if not _fits(modules, optimizers):
            self._due = float("inf")
            return
        self._waiting = Snapshot(modules, optimizers, step)
        self._due = now + (self._clock() - now) / _BUDGET

    def confirm(self, step: int) -> None:
        """The loss of this step was finite."""
        if self._waiting is not None and self._waiting.step <= step:
            self.good, self._waiting = self._waiting, None
            self._untrained.clear()

    def forget(self) -> None:
        self._waiting = None


def _parameters(modules: Iterable[Any], optimizers: list[Any]) -> list[Any]:
    owned = [p for each in optimizers for group in each.param_groups for p in group["params"]]
    held = [p for module in modules for p in module.parameters()]
    return list({id(each): each for each in (*owned, *held)}.values())


def finite_parameters(modules: Iterable[Any]) -> bool:
    return all(_finite(each) for module in modules for each in module.parameters())


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    return {key: v.detach().clone() if isinstance(v, torch.Tensor) else v for key, v in state.items()}


def _finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _fits(modules: list[Any], optimizers: list[Any]) -> bool:
    parameters = _parameters(modules, optimizers)
    if not parameters:
        return True
    # Adam keeps two numbers for each parameter; a new snapshot is taken before the old one goes.
    needed = 2 * 3 * sum(each.numel() * each.element_size() for each in parameters)
    free = _free_bytes(parameters[0].device)
    return free is None or needed <= _MOST_MEMORY * free


def _free_bytes(device: torch.device) -> int | None:
    if (accelerator := of_kind(device.type)) is not None:
        memory = accelerator.free_and_total(device.index)
        return memory[0] if memory is not None else None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
