"""What happens when low precision or the compiler does not work on this job: a lesser setting, and the run goes on.

A loss that is not finite drops its backward pass, puts back what it has broken from the last good state and goes on
one precision lower, if hotlap has lowered it. Else it is the script's own, and is only told. On a device the answer
is read a step later, when it has come by itself: nothing here waits for the device.
"""

from __future__ import annotations

import functools
import gc
import math
import sys
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import torch

from hotlap.facts.rewrite import is_rewrite
from hotlap.plan.record import wrapped
from hotlap.ports.knob import UNCHANGED
from hotlap.probe import boundary
from hotlap.probe.accelerator import of_kind
from hotlap.seams.fitter import Fitter, StepDown
from hotlap.seams.loss_scale import LossScale
from hotlap.seams.snapshot import Keeper, finite_parameters
from hotlap.seams.training import Training

PRECISION, FULL = "precision", "32"
_LOWER = {"16-mixed": "bf16-mixed", "bf16-mixed": FULL}


class ComputeFallbacks:
    """Of one process."""

    def __init__(self, fitter: Fitter, training: Training) -> None:
        self.loss_scale = LossScale(training, self._overflows)
        self._fitter = fitter
        self._training = training
        self._models: list[tuple[weakref.ref[Any], Callable[[Any], Any]]] = []
        self._keeper = Keeper()
        self._autocasts = Autocasts(fitter.wrap)
        self._flags = LateFlags()
        self._told = False
        self._seen_finite = 0  # the last step whose loss was, where that is known at once

    @staticmethod
    def is_wanted(fitter: Fitter) -> bool:
        """Where every setting leaves the numbers as they are, so does the ladder; what a rewrite rounds has no lesser
        setting."""
        knobs = [fitter.knobs[key] for key in fitter.settings if not is_rewrite(key)]
        return any(each.numerics not in UNCHANGED for each in knobs)

    def watch(self) -> None:
        self._training.backward.append(self._backward)
        self._training.step_begins.append(self._step_begins)

    def met(self, module: Any, target_of: Callable[[Any], Any]) -> None:
        """A root that settings were given to."""
        self._models.append((weakref.ref(module), target_of))
        boundary.attempt(self._keeper.met, module)

    def step_down(
        self, knob: str, after: Any, reason: str, *, step: int | None = None, lost: int = 0
    ) -> None:
        """Take a setting back everywhere, and give its places the lesser one."""
        before = self._fitter.settings[knob]
        down = StepDown(knob, before, after, reason, step or self._step, lost)
        targets = [make(module) for held, make in self._models if (module := held()) is not None]
        self._fitter.step_down(down, targets)

    # -- what is watched -----------------------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        """The step under way, counted from 1."""
        return self._training.steps + 1

    @property
    def _lowered(self) -> bool:
        """Whether the precision is one that hotlap has put there."""
        acts = any(each.knob == PRECISION and each.acts for each in self._fitter.fitted)
        return acts and self._fitter.settings.get(PRECISION) in _LOWER

    def _backward(self, call: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        loss = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
        if self._flags.are_for(loss):
            if self._read(loss):
                return None
        elif loss.device.type != "cpu" or _finite(loss):  # another device would have to be waited for
            self._seen_finite = self._step
            self._keeper.confirm(self._step)
        elif self._lowered and not _distributed():
            if self._mended(self._step):
                return None  # its gradients would not be finite either
        else:
            self._tell_own()
        return call(tensors, *args, **kwargs)

    def _read(self, loss: torch.Tensor) -> bool:
        """True where an earlier loss was not finite: this one came from what it has broken."""
        boundary.attempt(self._flags.put, self._step, loss)
        for step, finite in self._flags.arrived():
            if finite:
                self._keeper.confirm(step)
            elif self._lowered and not _distributed():
                self._flags.clear()
                return self._mended(step)
            else:
                self._tell_own()
        return False

    def _step_begins(self, _: Any) -> None:
        if self._lowered and not _distributed():
            self._keeper.look(self._live(), list(self._training.optimizers), self._step)
            if self._seen_finite == self._step:  # not where a closure computes the loss inside of the step
                self._keeper.confirm(self._step)

    # -- what is done about it -----------------------------------------------------------------------------------

    def _mended(self, step: int) -> bool:
        """Goes one precision lower. False where a GradScaler is in use: it leaves the step out, and wants gradients."""
        before, reason = self._fitter.settings[PRECISION], "the loss is not finite"
        after = _supported(_LOWER[before], self._live())
        good = self._keeper.good
        self._keeper.forget()
        restored = self._keeper.restore()
        broken = not finite_parameters(self._live()) if restored is None else restored
        if broken and good is None:
            reason += ", and there was no room to keep an earlier state, so its parameters are not either"
        lost = self._step - good.step if broken and good is not None else 0
        if self._fitter.has_taken(PRECISION):
            self._autocasts.lower_to(after)
            self._fitter.stepped_down(StepDown(PRECISION, before, after, reason, step, lost))
        else:
            self.step_down(PRECISION, after, reason, step=step, lost=lost)
        return not _scaler_in_use()

    def _overflows(self, reason: str) -> None:
        """The gradients of one step after the other, at whatever scale; no such step was made, so nothing is broken."""
        after = _supported(_LOWER["16-mixed"], self._live())
        self.step_down(PRECISION, after, reason)

    def _tell_own(self) -> None:
        if not self._told:
            self._told = True
            lowered = any(each.knob == PRECISION for each in self._fitter.step_downs)
            why = "in 32 bits either" if lowered else "and hotlap has not lowered the precision"
            text = f"the loss is not finite at step {self._step}, {why}: it is left to the script"
            boundary.unmeasured(text)
            print(*wrapped(text), sep="\n", file=sys.stderr, flush=True)

    def _live(self) -> list[Any]:
        return [module for held, _ in self._models if (module := held()) is not None]


def _finite(loss: torch.Tensor) -> bool:
    if loss.numel() == 1:
        # Not `loss.item()`, which the probe counts as the script's own.
        return math.isfinite(torch._C.TensorBase.item(loss))
    return bool(torch.isfinite(loss.detach()).all())


def _supported(setting: str, modules: list[Any]) -> str:
    """bf16 is slower than 32 bits on a GPU that only emulates it."""
    on_cuda = any(each.is_cuda for module in modules for each in module.parameters())
    emulated = on_cuda and not torch.cuda.is_bf16_supported(including_emulation=False)
    return FULL if setting == "bf16-mixed" and emulated else setting


def _scaler_in_use() -> bool:
    """Looked for among all objects, which takes a moment: a fault comes once or twice in a run."""
    # By type: isinstance would ask each object for its class, which some answer with a warning.
    scalers = [each for each in _objects() if issubclass(type(each), torch.amp.GradScaler)]
    return any(each.is_enabled() for each in scalers)


def _objects() -> list[Any]:
    """Also those that are set apart from garbage collection, by the script or by the knob gc-freeze."""
    if not gc.get_freeze_count():
        return gc.get_objects()
    gc.unfreeze()
    found = gc.get_objects()
    gc.freeze()
    return found


def _distributed() -> bool:
    """Ranks that decide by a loss of their own would part ways."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


# Lowers the precision of a framework that was built with one: all of them enter `torch.autocast`.


_KEPT: dict[str, torch.dtype] = {"bf16-mixed": torch.bfloat16}


class Autocasts:
    """From the first `lower_to` on, whoever enters autocast gets that precision; a GradScaler may go on scaling."""

    def __init__(self, wrap: Callable[..., Any]) -> None:
        self._wrap = wrap
        self._setting: str | None = None

    def lower_to(self, setting: str) -> None:
        if self._setting is None:
            self._wrap(torch.autocast, "__enter__", self._around)
        self._setting = setting

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def entered(context: Any, *args: Any, **kwargs: Any) -> Any:
            dtype = _KEPT.get(self._setting or "")
            if dtype is None:
                context._enabled = False
            else:
                context.fast_dtype = dtype
            return original(context, *args, **kwargs)

        return entered


# Whether a loss on a device is finite, known when the device has got that far, without waiting for it.


_MOST_WAITING = 64


class LateFlags:
    """Each flag is copied to the host beside the device's other work and read once its event has passed."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, torch.Tensor, Any]] = deque(maxlen=_MOST_WAITING)
        self.used = False

    def are_for(self, loss: torch.Tensor) -> bool:
        return of_kind(loss.device.type) is not None

    def put(self, step: int, loss: torch.Tensor) -> None:
        self.used = True
        flag = torch.isfinite(loss.detach()).all()
        landed, event = self._sent(flag)
        self._waiting.append((step, landed, event))

    def arrived(self) -> list[tuple[int, bool]]:
        """Step and answer of those that the host can read by now, the oldest first."""
        answers = []
        while self._waiting and self._waiting[0][2].query():
            step, landed, _ = self._waiting.popleft()
            answers.append((step, bool(landed)))
        return answers

    def clear(self) -> None:
        self._waiting.clear()

    def _sent(self, flag: torch.Tensor) -> tuple[torch.Tensor, Any]:
        landed = torch.empty((), dtype=torch.bool, pin_memory=True)
        landed.copy_(flag, non_blocking=True)
        device = of_kind(flag.device.type)
        assert device is not None  # `are_for` has said so
        event = device.passing_event()
        event.record()
        return landed, event
