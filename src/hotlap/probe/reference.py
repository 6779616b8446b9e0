"""Reference batches: the questions that the script's model and the plan's are both asked at the end of a guard run.

The run of the original script goes on after its last step, with its optimizers held still: what its own loader gives
next is put aside, and the losses are its answers. A run with a plan reads those batches and gets them from its training
loader in place of its own. Each question finds the random numbers and the buffers of the model as they were before the
first one.
"""

from __future__ import annotations

import functools
import gc
import io
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from hotlap.facts import private
from hotlap.probe import boundary
from hotlap.sameness import random_states

LEAD = 2
"""Questions whose losses do not count: a framework that fetches ahead still computes one or two of its own batches."""
MOST, LEAST = 12, 4  # questions that count
_MOST_BYTES = 512 << 20  # of all that is put aside for one seed
_MOST_LOSSES = 8  # for each question: a loop that computes more does not get them from its loader

TOO_LARGE = "its batches are too large to be put aside"


class Reference:
    """The questions of one run, and the answers to them. `puts`: this is the run that puts them aside."""

    def __init__(self, path: Path, *, puts: bool) -> None:
        self._path, self._puts = path, puts
        self._stored: list[bytes] = []
        self._count = MOST + LEAD
        self._given = self._losses = 0
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.answers: list[float] = []
        self.fault = ""

    def begin(self) -> None:
        """From now on the model is to stay as it is."""
        if not self._puts:
            self._stored = boundary.attempt(self._read) or []
            self._count = len(self._stored)
            self.fault = "" if self._stored else "the original script left none"
        self._buffers = [(each, each.detach().clone()) for each in boundary.attempt(_buffers) or []]

    @property
    def over(self) -> bool:
        """All questions were asked, or none can be."""
        return bool(self.fault) or self._given >= self._count or self._losses > _MOST_LOSSES * self._count

    def question(self, own: Callable[[], Any]) -> Any:
        """The next batch; `own()` is one that the script's loader makes."""
        if self._puts:
            batch = own()
            boundary.attempt(self._put, batch)
        else:
            # Classes of the script's own may be in it; it was written by a run of this job.
            batch = torch.load(io.BytesIO(self._stored[self._given]), weights_only=False)
        self._given += 1
        boundary.attempt(self._put_back)
        return batch

    def answer(self, loss: float) -> None:
        self._losses += 1
        if self._losses > LEAD and self._given > LEAD:
            self.answers.append(loss)

    def close(self) -> None:
        """The questions can be asked of others now."""
        if self._puts and not self.fault:
            private.make_folder(self._path.parent)
            private.write(self._path, pickle.dumps(self._stored))

    def _put(self, batch: Any) -> None:
        """At once, as it came: a script may change it in place."""
        written = io.BytesIO()
        try:
            torch.save(batch, written)
        except Exception as fault:
            self.fault = f"its batches cannot be written to a file ({type(fault).__name__})"
            raise
        self._stored.append(written.getvalue())
        fit = _MOST_BYTES // len(self._stored[-1])
        self._count = min(self._count, max(fit, self._given + 1))
        if fit < LEAST + LEAD:
            self.fault = TOO_LARGE

    def _put_back(self) -> None:
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        random_states.seed(self._given)
        torch.manual_seed(self._given)  # those of devices too

    def _read(self) -> list[bytes]:
        if refused := private.foreign(self._path):
            raise PermissionError(refused)
        stored: list[bytes] = pickle.loads(self._path.read_bytes())
        return stored


def _buffers() -> list[torch.Tensor]:
    """Of all models in this process: running means, and whatever else a forward pass writes."""
    modules = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
    every = [buffer for module in modules for buffer in module.__dict__.get("_buffers", {}).values()]
    return list({id(each): each for each in every if isinstance(each, torch.Tensor)}.values())


class HeldOptimizers:
    """Steps that change nothing: without gradients an optimizer passes over its parameters and their states."""

    def __init__(self) -> None:
        self._taken: list[list[tuple[Any, Any]]] = []  # one for each step under way: one may call another

    def before(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """What `step` is called with. A closure computes the gradients within the step, as Lightning has it."""
        self._taken.append([])
        self._take(optimizer)
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            return args, kwargs

        def computed() -> Any:
            loss = closure()
            self._take(optimizer)
            return loss

        return args[:1], {**kwargs, "closure": computed}

    def after(self) -> None:
        """The script finds its gradients as it has computed them: it may log them."""
        for parameter, gradient in self._taken.pop():
            parameter.grad = gradient

    def _take(self, optimizer: Any) -> None:
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        for each in parameters:
            if each.grad is not None:
                self._taken[-1].append((each, each.grad))
                each.grad = None


# Seeds for a run of the guard: a script that does not seed can be compared with itself, and another seed than
# 0 shifts every seed that the script sets, also of generators of its own: what chance does to a training is
# told by runs that differ in all that is drawn.


_SHIFT = 7919  # a prime: seeds of a script that counts up do not meet those of another run


def install(seed: int, wrap: Callable[..., Any]) -> None:
    import numpy

    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    if seed:
        for owner in (torch, torch.random, random, numpy.random):
            wrap(owner, "manual_seed" if owner in (torch, torch.random) else "seed", _shifted(seed))
        wrap(numpy.random, "default_rng", _shifted(seed))
        boundary.attempt(wrap, torch, "Generator", functools.partial(_reseeded, seed=seed))


def _shifted(seed: int) -> Callable[..., Any]:
    def around(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def sown(value: Any = None, *args: Any, **kwargs: Any) -> Any:
            return original(_other(value, seed), *args, **kwargs)

        return sown

    return around


def _other(value: Any, seed: int) -> Any:
    """A seed in the place of the script's; what is none stays."""
    if isinstance(value, list | tuple):  # as numpy takes them
        return [*value, seed * _SHIFT]
    return (value + seed * _SHIFT) % 2**32 if isinstance(value, int) else value


def _reseeded(original: Any, *, seed: int) -> type:
    """Generators of the script's own, as it passes them to loaders and samplers. Torch's own still count as such."""

    class Kind(type(original)):  # type: ignore[misc]
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc]
        def manual_seed(self, value: int) -> Any:
            return super().manual_seed(_other(value, seed))

    return Generator
