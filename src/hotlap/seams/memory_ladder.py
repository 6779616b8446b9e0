"""In the training process: what the parent must know to go one step down when memory runs out.

The script's own code has been left by the exception, or the process has been killed without a word, so the job is
started again (launch/oom_retry.py). Here is written down, while it still can be, how large the batches are, at which
step something was saved, and which exception ended the script.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

import torch

from hotlap.ports.target import Seam
from hotlap.probe import boundary
from hotlap.seams.faults import OTHER, OUT_OF_MEMORY, kind_of
from hotlap.seams.fitter import Fitter
from hotlap.seams.step import Feeding


def install(fitter: Fitter) -> None:
    notes = _Notes(fitter)
    notes.listen()
    atexit.register(notes.ended)


class _Notes:
    """What `Record.notes` holds: batch, optimizers (names of those alive), saved and loaded (steps), fault."""

    def __init__(self, fitter: Fitter) -> None:
        self._fitter = fitter
        self._feeding = Feeding(self._iterated)
        self._optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._steps = 0
        self._pid = os.getpid()

    def listen(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        self._feeding.listen(self._fitter, to_growth=False)
        self._fitter.meets[Seam.OPTIMIZER].append(self._optimizer_built)
        self._fitter.wrap(torch.optim.Optimizer, "__init__", self._around_build)
        self._fitter.wrap(torch, "save", self._around_save)
        self._fitter.wrap(torch, "load", self._around_load)
        hook = register_optimizer_step_post_hook(self._step_made)
        self._fitter.patches.keep(hook.remove)

    def _iterated(self) -> None:
        """Until the first step: a kill may come with it. Validation may be iterated before, training comes later."""
        size = self._feeding.batch_size
        if self._steps == 0 and size is not None and size != self._fitter.notes.get("batch"):
            self._fitter.note("batch", size)

    def _around_build(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            boundary.attempt(self._optimizer_built, optimizer)

        return built

    def _optimizer_built(self, optimizer: Any) -> None:
        self._optimizers.add(optimizer)
        self._fitter.note("optimizers", sorted(type(each).__name__ for each in self._optimizers))

    def _step_made(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._steps += 1

    def _around_save(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            saved = original(*args, **kwargs)
            if self._steps and self._fitter.notes.get("saved") != self._steps:
                boundary.attempt(self._fitter.note, "saved", self._steps)
            return saved

        return save

    def _around_load(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load(*args: Any, **kwargs: Any) -> Any:
            if self._steps == 0 and "loaded" not in self._fitter.notes:
                boundary.attempt(self._fitter.note, "loaded", True)
            return original(*args, **kwargs)

        return load

    def ended(self) -> None:
        """Python keeps the exception that ended a script, also where its hook for it was replaced."""
        error = getattr(sys, "last_value", None)
        if error is not None and os.getpid() == self._pid:
            boundary.attempt(self._note_fault, error)

    def _note_fault(self, error: BaseException) -> None:
        kind = kind_of(error)
        if kind == OUT_OF_MEMORY and _validates(error):
            kind = OTHER  # the batches of validation are the script's
        self._fitter.note("fault", {"kind": kind, "step": self._steps})


def _validates(error: BaseException) -> bool:
    """Whether the outermost module that the exception came through was in evaluation mode."""
    trace = error.__traceback__
    while trace is not None:
        owner = trace.tb_frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            return not owner.training
        trace = trace.tb_next
    return False
