"""Writes down what the first steps computed, so that two runs can be compared: losses, batches, parameters, generators.

Only in runs that the guard starts; nothing is timed in them. Random numbers are seeded at the start, so that a script
that does not seed can be compared with itself, and a seed other than 0 shifts every seed that the script sets, also of
generators of its own: what chance does to a training is told by runs that differ in all that is drawn.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotlap.probe import boundary
from hotlap.probe.batch import BatchReader
from hotlap.probe.control import WindowDone

ENDING = ".witness.json"
_WIDTH = 16  # numbers of a sketch
_SHIFT = 7919  # a prime: seeds of a script that counts up do not meet those of another run
_MOST_DEPTH = 8
_LEAST_STEPS = 12  # of a larger batch: a rate that is too high needs some to show


@dataclass(frozen=True)
class Wanted:
    """How far a run goes: so many steps, or fewer where they have seen as many samples as are asked for; 0 asks for
    none."""

    steps: int
    seed: int = 0
    samples: int = 0

    def reached(self, steps: int, samples: int) -> bool:
        return steps >= self.steps or (steps >= _LEAST_STEPS and 0 < self.samples <= samples)


class Witness:
    """Of one process."""

    def __init__(self, path: Path, wanted: Wanted) -> None:
        self._path = path
        self._wanted = wanted
        self._losses: list[float] = []
        self._samples: list[int] = []
        self._batches: list[str] = []
        self._start: list[float] = []
        self._sketches: list[list[float]] = []
        self._optimizers: dict[int, Any] = {}
        self._counts: dict[int, int] = {}
        self._seen = 0
        self._unscaled: dict[int, float] = {}
        self._reader = BatchReader(0)

    # -- what is seen ------------------------------------------------------------------------------------------

    def batch(self, batch: Any) -> None:
        self._batches.append(digest(batch))
        self._seen += max(0, self._reader._size(batch))

    def loss(self, tensors: Any) -> None:
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
        value = self._unscaled.pop(id(first), None)
        self._losses.append(float(first.detach().float().mean()) if value is None else value)
        self._samples.append(self._seen)

    def scaled(self, before: Any, after: Any) -> None:
        """A GradScaler's factor is no part of the loss."""
        if isinstance(before, torch.Tensor):
            self._unscaled[id(after)] = float(before.detach().float().mean())

    def before_step(self, optimizer: Any, *_: Any) -> None:
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = optimizer
            self._start = sketch(self._parameters())

    def after_step(self, optimizer: Any, *_: Any) -> None:
        self._counts[id(optimizer)] = made = self._counts.get(id(optimizer), 0) + 1
        if made < max(self._counts.values()):
            return
        self._sketches.append(sketch(self._parameters()))
        if self._wanted.reached(made, self._in_all()):
            self.write()
            raise WindowDone(0)

    def _in_all(self) -> int:
        """Samples; of one process alone, since all ranks must end at the same step."""
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        return self._samples[-1] if self._samples and not several else 0

    def _parameters(self) -> list[torch.Tensor]:
        every = [group["params"] for each in self._optimizers.values() for group in each.param_groups]
        return [parameter for group in every for parameter in group]

    def write(self) -> None:
        body = {
            "seed": self._wanted.seed,
            "losses": self._losses,
            "samples": self._samples,
            "batches": self._batches,
            "start": self._start,
            "sketches": self._sketches,
            "parameters": digest(self._parameters()),
            "generators": digest(generators()),
            "steps": len(self._sketches),
        }
        self._path.write_text(json.dumps({"schema": 1, **body}))


def install(folder: Path, wanted: Wanted, wrap: Callable[..., Any]) -> None:
    """`wrap(owner, name, around)`; called last, so that it sees what the script itself passes and gets."""
    witness = Witness(folder / f"{os.getpid()}{ENDING}", wanted)
    _seed(wanted.seed, wrap)
    wrap(_BaseDataLoaderIter, "__next__", functools.partial(_around_next, witness))
    wrap(DataLoader, "__iter__", functools.partial(_around_iter, witness))
    wrap(torch.autograd, "backward", functools.partial(_around_backward, witness))
    wrap(torch.amp.GradScaler, "scale", functools.partial(_around_scale, witness))
    register_optimizer_step_pre_hook(witness.before_step)
    register_optimizer_step_post_hook(witness.after_step)


def _around_next(witness: Witness, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def given(self: Any) -> Any:
        batch = original(self)
        boundary.attempt(witness.batch, batch)
        return batch

    return given


def _around_iter(witness: Witness, original: Callable[..., Any]) -> Callable[..., Any]:
    """An iterator that is not torch's own, as a plan may put there, is followed too."""

    @functools.wraps(original)
    def begun(self: Any) -> Any:
        iterator = original(self)
        return iterator if isinstance(iterator, _BaseDataLoaderIter) else _followed(witness, iterator)

    return begun


def _followed(witness: Witness, iterator: Any) -> Iterator[Any]:
    for batch in iterator:
        boundary.attempt(witness.batch, batch)
        yield batch


def _around_backward(witness: Witness, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def passed(*args: Any, **kwargs: Any) -> Any:
        boundary.attempt(witness.loss, args[0] if args else kwargs["tensors"])
        return original(*args, **kwargs)

    return passed


def _around_scale(witness: Witness, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scaled(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        boundary.attempt(witness.scaled, outputs, result)
        return result

    return scaled


def _seed(seed: int, wrap: Callable[..., Any]) -> None:
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


def sketch(parameters: list[torch.Tensor]) -> list[float]:
    """A projection of all parameters onto a few numbers: what moves them moves it, and in proportion."""
    total = torch.zeros(_WIDTH, dtype=torch.float64)
    for number, parameter in enumerate(parameters):
        flat = parameter.detach().to("cpu", torch.float64).reshape(-1)
        padded = torch.nn.functional.pad(flat, (0, -flat.numel() % _WIDTH)).view(-1, _WIDTH)
        signs = torch.ones(len(padded), 1, dtype=torch.float64)
        signs[1::2] = -1.0
        total += (padded * signs).sum(0).roll(number)
    return [float(value) for value in total]


def generators() -> list[Any]:
    """The states of the random number generators of this process."""
    states: list[Any] = [torch.get_rng_state(), repr(random.getstate())]
    if "numpy" in sys.modules:
        import numpy

        states.append(repr(numpy.random.get_state()))
    return states


def digest(value: Any) -> str:
    """Of all bits of tensors, arrays, numbers and texts within."""
    hashed = hashlib.blake2b(digest_size=16)
    _feed(hashed, value, 0)
    return hashed.hexdigest()


def _feed(hashed: Any, value: Any, depth: int) -> None:
    if isinstance(value, torch.Tensor):
        plain = value.detach().to("cpu").contiguous()
        hashed.update(f"{plain.dtype}{tuple(plain.shape)}".encode())
        hashed.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b"")
    elif isinstance(value, Mapping) and depth < _MOST_DEPTH:
        for key in value:
            hashed.update(str(key).encode())
            _feed(hashed, value[key], depth + 1)
    elif isinstance(value, list | tuple) and depth < _MOST_DEPTH:
        hashed.update(f"[{len(value)}".encode())
        for each in value:
            _feed(hashed, each, depth + 1)
    elif hasattr(value, "tobytes"):
        hashed.update(value.tobytes())
    elif isinstance(value, str | bytes | int | float | bool | None):
        hashed.update(repr(value).encode())
    elif hasattr(value, "__dict__") and depth < _MOST_DEPTH:
        _feed(hashed, vars(value), depth + 1)
