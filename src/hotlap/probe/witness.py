"""Writes down what the first steps computed, so that two runs can be compared: losses, batches, parameters, generators.

Only in runs that the guard starts; nothing is timed in them. Where it is asked for, the run goes on after its last step
with reference batches (`reference.py`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hotlap.facts import private
from hotlap.probe import boundary
from hotlap.probe import reference as reseeding
from hotlap.probe.batch import BatchReader
from hotlap.probe.control import WindowDone
from hotlap.probe.reference import HeldOptimizers, Reference

ENDING = ".witness.json"
_LEAST_STEPS = 12  # of a larger batch: a rate that is too high needs some to show
_LONGER = 2  # times the steps, at the most, where the batches of a plan hold fewer samples
_USUAL_SIZES = 2  # of batches: the last one of an epoch is smaller
_OFTEN = 0.25  # of the losses: a loader that gives batches before fewer of them does not feed training

NO_LOADER = "no DataLoader feeds its training"
SEVERAL = "several DataLoaders feed its training at once"
OTHER_THREAD = "another thread fetches its batches ahead"
NOT_HELD = "its parameters change while the optimizers are held still"


@dataclass(frozen=True)
class Wanted:
    """How far a run goes: so many steps, or fewer where they have seen as many samples as are asked for; 0 asks for
    none."""

    steps: int
    seed: int = 0
    samples: int = 0
    epoch: int = 0  # steps after which a loader says that its epoch is over, so that a run sees more than one; 0: never

    def reached(self, steps: int, samples: int, *, asked: bool) -> bool:
        """What is asked about reference batches has seen as many samples, with smaller batches too."""
        if steps >= _LEAST_STEPS and 0 < self.samples <= samples:
            return True
        longer = asked and 0 < samples < self.samples
        return steps >= (_LONGER if longer else 1) * self.steps


@dataclass(eq=False)
class _Epoch:
    """One pass over a loader: what had been done when it began, and the batches that it gave."""

    steps: int
    losses: int
    loader: tuple[Any, ...]  # what tells it from others, also where it is built anew for each epoch
    size: int | None  # samples of a batch, as its sampler names them
    batches: int = 0


class WitnessRecorder:
    """Of one process."""

    def __init__(self, path: Path, wanted: Wanted, reference: Reference | None = None) -> None:
        self._path = path
        self._wanted = wanted
        self._reference = reference
        self._losses: list[float] = []
        self._samples: list[int] = []
        self._batches: list[str] = []
        self._start: list[float] = []
        self._sketches: list[list[float]] = []
        self._optimizers: dict[int, Any] = {}
        self._counts: dict[int, int] = {}
        self._seen = self._nominal = 0
        self._drawn = self._repeated = 0  # samples
        self._sizes: set[int] = set()
        self._unscaled: dict[int, float] = {}
        self._reader = BatchReader(0)
        self._running: _Epoch | None = None
        self._trained: list[_Epoch] = []
        self._since_loss: set[tuple[Any, ...]] = set()
        self._fed: Counter[tuple[Any, ...]] = Counter()  # losses before which a loader gave a batch
        self._mixed = 0  # losses before which several did
        self._fetching: set[int] = set()  # threads
        self._at_equal_samples: list[torch.Tensor] | None = None  # parameters, where more steps follow
        self._held = HeldOptimizers()
        self._asking = False
        self._body: dict[str, Any] = {}

    def begin(self, source: Any) -> _Epoch:
        """Somebody begins to iterate a loader, or an iterator of one is met first."""
        loader = boundary.attempt(_identity, source) or ()
        size = getattr(getattr(source, "_index_sampler", None), "batch_size", None)
        return _Epoch(self._made(), len(self._losses), loader, size if isinstance(size, int) else None)

    def over(self, epoch: _Epoch) -> bool:
        """Whether the epoch has been cut short: after some steps, or after as many batches that nobody trains on."""
        if not self._wanted.epoch or epoch.batches < self._wanted.epoch:
            return False
        return len(self._losses) == epoch.losses or self._made() - epoch.steps >= self._wanted.epoch

    def _made(self) -> int:
        return max(self._counts.values(), default=0)

    # -- what is seen ------------------------------------------------------------------------------------------

    def batch(self, batch: Any, epoch: _Epoch) -> None:
        epoch.batches += 1
        if self._asking:
            return
        self._running = epoch
        self._batches.append(digest(batch))
        if not torch.is_grad_enabled():  # it validates
            return
        size = max(0, self._reader._size(batch))
        self._seen += size
        self._nominal += epoch.size or size
        self._sizes.add(size)
        self._since_loss.add(epoch.loader)
        self._fetching.add(get_ident())

    def draws(self, indices: Any, met: set[Any]) -> None:
        """A sampler has chosen samples; `met` are those before it in the same epoch."""
        if self._asking or not torch.is_grad_enabled():
            return
        for index in indices if isinstance(indices, list | tuple) else [indices]:
            self._drawn += 1
            self._repeated += index in met
            met.add(index)

    def loss(self, tensors: Any) -> None:
        first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors))
        value = self._unscaled.pop(id(first), None)
        value = float(first.detach().float().mean()) if value is None else value
        if self._asking and self._reference is not None:
            self._reference.answer(value)
            return
        self._losses.append(value)
        self._samples.append(self._seen)
        self._fed.update(self._since_loss)
        self._mixed += len(self._since_loss) > 1
        self._since_loss.clear()
        if self._running is not None and self._running not in self._trained[-1:]:
            self._trained.append(self._running)

    def scaled(self, before: Any, after: Any) -> None:
        """A GradScaler's factor is no part of the loss."""
        if isinstance(before, torch.Tensor):
            self._unscaled[id(after)] = float(before.detach().float().mean())

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if self._asking:
            return self._held.before(optimizer, args, kwargs)
        if id(optimizer) not in self._optimizers:
            self._optimizers[id(optimizer)] = optimizer
            self._start = sketch(self._parameters())
        return None

    def after_step(self, optimizer: Any, *_: Any) -> None:
        if self._asking:
            self._held.after()
            if self._reference is not None and self._reference.over:
                self._end()
            return
        self._counts[id(optimizer)] = made = self._counts.get(id(optimizer), 0) + 1
        if made < max(self._counts.values()):
            return
        self._sketches.append(sketch(self._parameters()))
        samples = self._in_all()
        if self._wanted.reached(made, samples, asked=self._reference is not None):
            self._body = self._seen_so_far()
            self._write(self._body)
            self._ask()
        elif self._reference is not None and 0 < self._wanted.samples <= samples:
            self._keep_parameters()
        elif made == self._wanted.steps:
            self._write(self._seen_so_far())  # the script may end before it has seen as many samples

    def _in_all(self) -> int:
        """Samples; of one process alone, since all ranks must end at the same step. Where batches hold different
        numbers of them, each counts for as many as its sampler gives on average: that the first one held many short
        samples does not mean that the model has seen much."""
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if several or not self._samples:
            return 0
        return self._samples[-1] if len(self._sizes) <= _USUAL_SIZES else self._nominal

    def _parameters(self) -> list[torch.Tensor]:
        every = [group["params"] for each in self._optimizers.values() for group in each.param_groups]
        return [parameter for group in every for parameter in group]

    # -- reference batches -------------------------------------------------------------------------------------

    def _keep_parameters(self) -> None:
        """The model is asked as it is when it has seen as many samples as the script's own."""
        if self._at_equal_samples is None:
            self._at_equal_samples = [each.detach().to("cpu", copy=True) for each in self._parameters()]

    def _ask(self) -> None:
        reference = self._reference
        if reference is None:
            raise WindowDone(0)
        reference.fault = self._unfit()
        if reference.fault:
            self._end()
        with torch.no_grad():
            kept = self._at_equal_samples or []
            for parameter, before in zip(self._parameters(), kept, strict=False):
                parameter.copy_(before)
        self._body["asked"] = digest(self._parameters())
        self._asking = True
        reference.begin()

    def _unfit(self) -> str:
        """Why the script's loop cannot be given reference batches."""
        if not self._feeders():
            return NO_LOADER
        if 2 * self._mixed > len(self._losses):
            return SEVERAL
        return OTHER_THREAD if self._fetching - {get_ident()} else ""

    def _feeders(self) -> set[tuple[Any, ...]]:
        return {loader for loader, count in self._fed.items() if count >= _OFTEN * len(self._losses)}

    def asks(self, epoch: _Epoch) -> bool:
        """Whether the batch that is wanted now is one for training, and a reference batch takes its place."""
        return self._asking and torch.is_grad_enabled() and epoch.loader in self._feeders()

    def question(self, own: Callable[[], Any]) -> Any:
        assert self._reference is not None
        if self._reference.over:
            self._end()
        return self._reference.question(own)

    def _end(self) -> None:
        """All questions were answered, or none can be asked."""
        boundary.attempt(self._conclude)
        raise WindowDone(0)

    def _conclude(self) -> None:
        reference, body = self._reference, self._body
        assert reference is not None
        before = body.pop("asked", None)
        if before is not None and not reference.fault and digest(self._parameters()) != before:
            reference.fault = NOT_HELD
        reference.close()
        answers = [] if reference.fault else reference.answers
        self._write({**body, "answers": answers, "unasked": reference.fault})

    # -- what is written ---------------------------------------------------------------------------------------

    def _seen_so_far(self) -> dict[str, Any]:
        return {
            "seed": self._wanted.seed,
            "losses": self._losses,
            "samples": self._samples,
            "batches": self._batches,
            "start": self._start,
            "sketches": self._sketches,
            "parameters": digest(self._parameters()),
            "generators": digest(generators()),
            "steps": len(self._sketches),
            "epochs": len(self._trained),
            "repeated": self._repeated / max(1, self._drawn),
            "unasked": "its run ended before it was asked" if self._reference is not None else "",
        }

    def _write(self, body: dict[str, Any]) -> None:
        private.write(self._path, json.dumps({"schema": 1, **body}).encode())


def install(
    folder: Path, wanted: Wanted, wrap: Callable[..., Any], reference: Reference | None = None
) -> None:
    """`wrap(owner, name, around)`; called last, so that it sees what the script itself passes and gets."""
    witness = WitnessRecorder(folder / f"{os.getpid()}{ENDING}", wanted, reference)
    reseeding.install(wanted.seed, wrap)
    wrap(_BaseDataLoaderIter, "__next__", functools.partial(_around_next, witness))
    wrap(_BaseDataLoaderIter, "_next_index", functools.partial(_around_next_index, witness))
    wrap(DataLoader, "__iter__", functools.partial(_around_iter, witness))
    wrap(torch.autograd, "backward", functools.partial(_around_backward, witness))
    wrap(torch.amp.GradScaler, "scale", functools.partial(_around_scale, witness))
    register_optimizer_step_pre_hook(witness.before_step)
    register_optimizer_step_post_hook(witness.after_step)


def _identity(source: Any) -> tuple[Any, ...]:
    """Of a loader or of its iterator: equal for one that the script builds anew for each epoch."""
    dataset: Any = source._dataset if isinstance(source, _BaseDataLoaderIter) else source.dataset
    batches = source._index_sampler
    kinds = (type(each).__qualname__ for each in (dataset, batches, getattr(batches, "sampler", None)))
    try:
        length = len(dataset)
    except (TypeError, NotImplementedError):
        length = None
    return (*kinds, length, getattr(batches, "batch_size", None))


def _around_next(witness: WitnessRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def given(self: Any) -> Any:
        epoch = self.__dict__.get("_hotlap_epoch")
        if epoch is None:
            epoch = self.__dict__["_hotlap_epoch"] = witness.begin(self)
        if witness.asks(epoch):
            return witness.question(functools.partial(original, self))
        if witness.over(epoch):
            raise StopIteration
        batch = original(self)
        boundary.attempt(witness.batch, batch, epoch)
        return batch

    return given


def _around_next_index(witness: WitnessRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """By number: the same content may be that of two samples."""

    @functools.wraps(original)
    def drawn(self: Any) -> Any:
        indices = original(self)
        begun, met = self.__dict__.get("_hotlap_drawn", (None, set()))
        if begun is not self._sampler_iter:  # another epoch
            met = set()
            self.__dict__["_hotlap_drawn"] = self._sampler_iter, met
        boundary.attempt(witness.draws, indices, met)
        return indices

    return drawn


def _around_iter(witness: WitnessRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    """An iterator that is not torch's own, as a plan may put there, is followed too."""

    @functools.wraps(original)
    def begun(self: Any) -> Any:
        iterator = original(self)
        if not isinstance(iterator, _BaseDataLoaderIter):
            return _followed(witness, self, iterator)
        iterator.__dict__["_hotlap_epoch"] = witness.begin(self)
        return iterator

    return begun


def _followed(witness: WitnessRecorder, loader: Any, iterator: Any) -> Iterator[Any]:
    epoch, fetch = witness.begin(loader), functools.partial(next, iterator)
    while (asks := witness.asks(epoch)) or not witness.over(epoch):
        try:
            batch = witness.question(fetch) if asks else fetch()
        except StopIteration:
            return
        if not asks:
            boundary.attempt(witness.batch, batch, epoch)
        yield batch


def _around_backward(witness: WitnessRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def passed(*args: Any, **kwargs: Any) -> Any:
        boundary.attempt(witness.loss, args[0] if args else kwargs["tensors"])
        return original(*args, **kwargs)

    return passed


def _around_scale(witness: WitnessRecorder, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def scaled(self: Any, outputs: Any) -> Any:
        result = original(self, outputs)
        boundary.attempt(witness.scaled, outputs, result)
        return result

    return scaled


# Short forms of what a run of the guard computes: digests of all bits, and sketches of parameters.


_WIDTH = 16  # numbers of a sketch
_MOST_DEPTH = 8


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
