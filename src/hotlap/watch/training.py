"""Watches any training of torch's: losses, gradients, speed and memory, all monitors under one budget.

>>> import torch
>>> from hotlap.watch import TrainingMonitor
>>> model = torch.nn.Linear(4, 1)
>>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
>>> with TrainingMonitor(budget="50%") as monitor:  # sees backward passes and optimizer steps of this process
...     for _ in range(20):
...         optimizer.zero_grad()
...         model(torch.randn(8, 4)).square().mean().backward()
...         optimizer.step()
>>> monitor.words()["not-finite"].state
'finite'
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook

from hotlap.probe import boundary
from hotlap.probe.accelerator import in_use, of_kind
from hotlap.seams.patches import PatchStack
from hotlap.watch.budget import Budget
from hotlap.watch.monitors import (
    GradientNorm,
    LossSpike,
    MemoryGrowthMonitor,
    NotFinite,
    ThroughputDrift,
    Word,
    resident_bytes,
)
from hotlap.watch.records import process_journal

_MEMORY_EVERY_S, _JUDGE_EVERY_S, _TELL_EVERY_S = 2.0, 20.0, 1.0
_BLOCK_S, _MOST_STEPS = 0.1, 128
"""Steps are looked at in blocks of about so long: what all of them share is paid once, and caches stay the script's."""
_NORM_EVERY = 10  # steps
_MOST_PENDING = 8  # figures that a device has not computed yet
_MOST_WAITING = 8 * _MOST_STEPS
"""Losses kept while the budget allows no look: the first of them show since when a loss is not finite."""
# What tasks may take, until it has been measured.
_LOOK_S, _NORM_S, _JUDGE_S, _TELL_S = 0.0002, 0.005, 0.01, 0.001


class TrainingMonitor:
    """`with TrainingMonitor():` around the training, or `step(loss, parameters)` after each step of one's own.

    `words()` has the latest of each monitor; under hotlap they also go to `hotlap watch`. A figure of a GPU is read
    when the GPU has computed it: nothing here waits for one.
    """

    def __init__(
        self, budget: Budget | str | float = "1%", clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.budget = budget if isinstance(budget, Budget) else Budget(budget, clock)
        self.steps = 0
        self.notes: dict[str, Any] = {}  # what else a look from outside should find
        self._clock = clock
        self._loss, self._finite, self._norm = LossSpike(), NotFinite(), GradientNorm()
        self._drift, self._memory = ThroughputDrift(), MemoryGrowthMonitor()
        self._device_memory: MemoryGrowthMonitor | None = None
        self._pending: list[tuple[int, str, HostCopy]] = []
        self._losses: list[tuple[int, Tensor | float]] = []
        self._block = self._next_block = self._next_norm = 1
        self._began = 0.0
        self._next_memory = self._next_judge = self._next_tell = 0.0
        self._hooks: Hooks | None = None

    def __enter__(self) -> Self:
        if self.budget.share > 0:
            self._hooks = Hooks(self._seen)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching; what is still on its way is read."""
        if self._hooks is not None:
            self._hooks.remove()
            self._hooks = None
        self._take_losses()
        for step, what, reading in self._pending:
            self._add(step, what, reading.values()[0])
        self._pending.clear()
        self._tell(last=True)

    def words(self) -> dict[str, Word]:
        """The latest of each monitor."""
        of_memory = [each for each in (self._memory, self._device_memory) if each is not None]
        monitors: list[Any] = [self._loss, self._finite, self._norm, self._drift, *of_memory]
        return {each.id: each.word() for each in monitors}

    def step(self, loss: Tensor | float | None = None, parameters: Iterable[Tensor] = ()) -> None:
        """A step was made; the gradients of `parameters` are those it was made with."""
        if self.budget.share > 0:
            boundary.attempt(self._seen, loss, lambda: list(parameters))

    def _seen(self, loss: Tensor | float | None, parameters: Callable[[], Sequence[Tensor]]) -> None:
        self.steps += 1
        if loss is not None:
            self._losses.append((self.steps, loss))
        if self.steps >= self._next_block:
            self._look(parameters)

    def _look(self, parameters: Callable[[], Sequence[Tensor]]) -> None:
        now = self._clock()
        self._drift.add(self.steps, now)
        self._block = _block_size(self._block, now - self._began) if self._began else 1
        self._began, self._next_block = now, self.steps + self._block
        if not self.budget.allows("block", _LOOK_S):
            del self._losses[_MOST_WAITING:]
            return
        with self.budget.spending("block"):
            self._take_losses()
            if self.steps >= self._next_norm and self.budget.allows("norm", _NORM_S):
                self._take_norm(parameters())
            if now >= self._next_memory:
                self._take_memory(now)
            self._collect()
            if now >= self._next_tell and self.budget.allows("tell", _TELL_S):
                self._next_tell = now + _TELL_EVERY_S
                with self.budget.spending("tell"):
                    self._tell()

    def _take_losses(self) -> None:
        """All of a block; of a GPU the last, as each is a copy."""
        losses, self._losses = self._losses, []
        for step, loss in losses:
            if isinstance(loss, Tensor) and loss.device.type != "cpu":
                if step == losses[-1][0]:
                    self._expect("loss", loss)
            else:
                self._add(step, "loss", float(loss))

    def _take_norm(self, parameters: Sequence[Tensor]) -> None:
        self._next_norm = sys.maxsize  # gradients that have no norm (sparse ones) are not tried again
        with self.budget.spending("norm"):
            gradients = [each.grad.detach() for each in parameters if each.grad is not None]
            if gradients:
                self._expect("gradient", torch.nn.utils.get_total_norm(gradients))
        self._next_norm = self.steps + _NORM_EVERY

    def _expect(self, what: str, figure: Tensor) -> None:
        if len(self._pending) < _MOST_PENDING:
            self._pending.append((self.steps, what, HostCopy(figure)))

    def _collect(self) -> None:
        while self._pending and self._pending[0][2].ready:
            step, what, reading = self._pending.pop(0)
            self._add(step, what, reading.values()[0])

    def _add(self, step: int, what: str, value: float) -> None:
        self._finite.add(step, what, value)
        (self._loss if what == "loss" else self._norm).add(step, value)

    def _take_memory(self, now: float) -> None:
        self._next_memory = now + _MEMORY_EVERY_S
        used = resident_bytes()
        if used is not None:
            self._memory.add(self.steps, now, used)
        device = in_use()
        if device is not None and device.memory is not None:
            self._device_memory = self._device_memory or MemoryGrowthMonitor("gpu-memory")
            self._device_memory.add(self.steps, now, device.memory[0]())
        if now >= self._next_judge and self.budget.allows("judge", _JUDGE_S):
            self._next_judge = now + _JUDGE_EVERY_S
            with self.budget.spending("judge"):
                for each in (self._memory, self._device_memory):
                    if each is not None:
                        each.judge()

    def _tell(self, *, last: bool = False) -> None:
        journal = process_journal()
        if journal is None:
            return
        passes = self._hooks.passes if self._hooks is not None else 1
        journal.steps, journal.notes = self.steps, {**self.notes, "passes": passes}
        for monitor, word in self.words().items():
            journal.tell(monitor, word)
        journal.budget("training", self.budget)
        journal.write() if last else journal.write_if_due()


def _block_size(steps: int, seconds: float) -> int:
    """As many steps as take about the time of a block."""
    return max(1, min(_MOST_STEPS, 2 * steps, round(_BLOCK_S * steps / max(seconds, 1e-6))))


# Sees the backward passes and optimizer steps of this process, whichever framework makes them.


Seen = Callable[[Tensor | None, Callable[[], Sequence[Tensor]]], None]


class Hooks:
    """Calls `seen(loss, parameters)` after each step of the optimizer that steps most often.

    The loss is that of the last backward pass before the step, as it was before a gradient scaler.
    """

    def __init__(self, seen: Seen) -> None:
        self.passes = 1  # backward passes of the last step: gradients may be accumulated
        self._passes = 0
        self._call = seen
        self._loss: Tensor | None = None
        self._scaled: tuple[int, Tensor] | None = None
        self._made: dict[int, int] = {}
        self._most = 0
        self._is_compiling = torch.compiler.is_compiling
        self._patches = PatchStack()
        self._patches.keep(register_optimizer_step_post_hook(self._stepped).remove)
        self._patches.wrap(torch.autograd, "backward", self._around_backward)
        self._patches.wrap(torch.amp.GradScaler, "scale", self._around_scale)

    def remove(self) -> None:
        self._patches.undo_all()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._is_compiling():
            return
        made = self._made[id(optimizer)] = self._made.get(id(optimizer), 0) + 1
        if made > self._most:
            self._most = made
            loss, self._loss = self._loss, None
            self.passes, self._passes = max(1, self._passes), 0
            boundary.attempt(self._call, loss, functools.partial(_parameters, optimizer))

    def _around_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def passed(*args: Any, **kwargs: Any) -> Any:
            if not self._is_compiling():
                boundary.attempt(self._take, args[0] if args else kwargs.get("tensors"))
            return original(*args, **kwargs)

        return passed

    def _take(self, tensors: Any) -> None:
        self._passes += 1
        loss = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
        if self._scaled is not None and self._scaled[0] == id(loss):
            loss = self._scaled[1]
        self._scaled = None
        self._loss = loss.detach() if isinstance(loss, Tensor) and loss.numel() == 1 else None

    def _around_scale(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The scale changes by itself, and would look like a jump of the loss."""

        @functools.wraps(original)
        def scaled(scaler: Any, outputs: Any) -> Any:
            result = original(scaler, outputs)
            if isinstance(outputs, Tensor):
                self._scaled = (id(result), outputs.detach())
            return result

        return scaled


def _parameters(optimizer: Any) -> list[Tensor]:
    return [each for group in optimizer.param_groups for each in group["params"]]


# Figures on their way from a device to the host: nobody waits for them.


class HostCopy:
    """A copy that was begun. On the CPU it is there at once; from a device it comes when that has got so far."""

    def __init__(self, tensor: Tensor) -> None:
        self._event: Any = None
        device = of_kind(tensor.device.type)
        if device is not None:
            self._values = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._values.copy_(tensor.detach(), non_blocking=True)
            self._event = device.passing_event()
            self._event.record()
        else:
            self._values = tensor.detach()

    @property
    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def values(self) -> list[float]:
        """Ask only when it is ready, unless waiting is fine (at the end of training)."""
        if self._event is not None:
            self._event.synchronize()
        return [float(each) for each in self._values.reshape(-1).tolist()]
