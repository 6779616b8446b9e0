"""The loop of a script that steps torch's optimizers itself: which of its steps are made, and how its loss counts.

A step that is left out takes clipping, unscaling, the scheduler and the next `zero_grad()` with it, so that gradients
add up until a step is made. Nothing is changed on any object: the functions of torch's classes are wrapped.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.optim import Optimizer, lr_scheduler

from hotlap.ports.target import Seam, Undo
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter
from hotlap.seams.training import kept

_is_compiling = torch.compiler.is_compiling
Wrapped = Callable[..., Any]


def install(fitter: Fitter) -> None:
    """Only where the plan has something for this seam: a plan without costs the loop nothing."""
    if fitter.wants(Seam.STEP):
        StepSeam(fitter).listen()


class StepSeam:
    """Implements ports.target.Step. There is one phase for the script, as one optimizer at a time is accumulated for.

    `_skipping` is the answer for the step that the script is about to attempt, None before anybody needed it;
    `holds` says that gradients of steps left out wait for one that is made.
    """

    def __init__(self, fitter: Fitter) -> None:
        self.patches = fitter.patches
        self.growth: dict[str, float] = {}
        self._fitter = fitter
        self._feeding = Feeding()
        self._built: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._whens: list[Callable[[], bool]] = []
        self._factors: list[Callable[[], float]] = []
        self._acts: list[Callable[[], None]] = []
        self._offered = False
        self._skipping: bool | None = None
        self.holds = self._inside = self._in_scheduler = False
        self._attempts = 0
        self._schedulers: weakref.WeakKeyDictionary[Any, tuple[int, bool]] = weakref.WeakKeyDictionary()
        self._wrapped: set[tuple[type, str]] = set()

    # -- what knobs see ------------------------------------------------------------------------------------------

    @property
    def optimizers(self) -> Collection[Any]:
        return list(self._built)

    def batch_growth(self) -> float:
        grown = self._feeding.growth
        factors = dict(self.growth)
        for growth in self._fitter.growths:  # of several trainers the last one counts
            factors |= growth
        for factor in factors.values():
            grown *= factor
        return grown

    def withdraw(self, knob: str, reason: str) -> None:
        self._fitter.undo(knob)
        self._fitter.withdraw(knob, "", reason)

    def skip_optimizer(self, when: Callable[[], bool]) -> Undo:
        return kept(self._whens, when)

    def scale_loss(self, factor: Callable[[], float]) -> Undo:
        return kept(self._factors, factor)

    def each_step(self, act: Callable[[], None]) -> Undo:
        return kept(self._acts, act)

    # -- what torch's functions become ---------------------------------------------------------------------------

    def listen(self) -> None:
        self._feeding.listen(self._fitter, to_growth=True)
        self._fitter.meets[Seam.OPTIMIZER].append(self._meet)
        wrap = self._fitter.wrap
        wrap(Optimizer, "__init__", self._around_build)
        wrap(Optimizer, "zero_grad", self._around_zero_grad)
        wrap(torch.nn.Module, "zero_grad", self._around_zero_grad)
        wrap(torch.autograd, "backward", self._around_backward)
        for module in (torch.nn.utils, torch.nn.utils.clip_grad):
            wrap(module, "clip_grad_norm_", self._around_clip_norm)
            wrap(module, "clip_grad_value_", self._around_clip_value)
        for kind in (lr_scheduler.LRScheduler, *_subclasses(lr_scheduler.LRScheduler)):
            self._wrap_once(kind, "step", self._around_schedule)
        wrap(lr_scheduler.LRScheduler, "__init__", self._around_scheduler_build)
        wrap(torch.amp.GradScaler, "step", self._around_scaler_step)
        wrap(torch.amp.GradScaler, "unscale_", self._around_unscale)
        wrap(torch.amp.GradScaler, "update", self._around_update)

    def _wrap_once(self, kind: type, name: str, around: Callable[[Wrapped], Wrapped]) -> None:
        if name in vars(kind) and (kind, name) not in self._wrapped:
            self._wrapped.add((kind, name))
            self._fitter.wrap(kind, name, around)

    def _offer(self) -> None:
        """Once, before the first gradient: by then trainers have been built, and loaders and optimizers too."""
        self._offered = True
        self._fitter.offer(Seam.STEP, self)

    def _skips(self) -> bool:
        """The answer for the step that comes next."""
        if not self._offered:
            self._offer()
        if self._skipping is None:
            answers = [boundary.attempt(when) for when in list(self._whens)]
            self._skipping = any(answers)
        return self._skipping

    def _attempted(self) -> None:
        self.holds = bool(self._skipping)
        self._skipping = None
        self._attempts += 1

    def _around_build(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def built(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            boundary.attempt(self._meet, optimizer)

        return built

    def _meet(self, optimizer: Any) -> None:
        self._built.add(optimizer)
        owner = next(kind for kind in type(optimizer).__mro__ if "step" in vars(kind))
        self._wrap_once(owner, "step", self._around_step)

    def _around_step(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            make = functools.partial(original, optimizer, *args, **kwargs)
            if _is_compiling() or self._inside:
                return make()
            return self._attempt(make, args[0] if args else kwargs.get("closure"))

        return step

    def _attempt(self, make: Wrapped, closure: Wrapped | None) -> Any:
        """A closure computes the gradients of a step, also of one that is left out."""
        skips, self._inside = self._skips(), True
        try:
            if skips:
                return None if closure is None else torch.enable_grad()(closure)()
            made = make()
        finally:
            self._inside = False
            self._attempted()
        for act in list(self._acts):
            boundary.attempt(act)
        return made

    def _around_zero_grad(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
            if not self.holds or _is_compiling():
                original(owner, *args, **kwargs)

        return zero_grad

    def _around_backward(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if not _is_compiling():
                if not self._offered:
                    boundary.attempt(self._offer)
                if self._factors:
                    grad_tensors = _scaled(tensors, grad_tensors, self._factor())
            return original(tensors, grad_tensors, *args, **kwargs)

        return backward

    def _factor(self) -> float:
        product = 1.0
        for factor in list(self._factors):
            product *= factor()
        return product

    def _around_clip_norm(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, **kwargs: Any) -> Any:
            if _is_compiling() or not self._skips():
                return original(parameters, max_norm, norm_type, **kwargs)
            # Scripts log what it returns: the norm of what has added up so far.
            tensors = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            grads = [each.grad for each in tensors if each.grad is not None]
            return torch.nn.utils.get_total_norm(grads, norm_type)

        return clip_grad_norm_

    def _around_clip_value(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def clip_grad_value_(*args: Any, **kwargs: Any) -> None:
            if _is_compiling() or not self._skips():
                original(*args, **kwargs)

        return clip_grad_value_

    # -- schedulers and scalers ----------------------------------------------------------------------------------

    def _around_scheduler_build(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def built(scheduler: Any, *args: Any, **kwargs: Any) -> None:
            boundary.attempt(self._wrap_once, type(scheduler), "step", self._around_schedule)
            original(scheduler, *args, **kwargs)

        return built

    def _around_schedule(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if self._in_scheduler:  # a scheduler of schedulers has decided for those inside
                return original(scheduler, *args, **kwargs)
            if self._leaves_out(scheduler):
                return None
            self._in_scheduler = True
            try:
                return original(scheduler, *args, **kwargs)
            finally:
                self._in_scheduler = False

        return step

    def _leaves_out(self, scheduler: Any) -> bool:
        """One that goes with each step goes with those that are made; one that goes with epochs always does."""
        attempts, before = self._schedulers.get(scheduler, (0, False))
        since = self._attempts - attempts
        left_out = before if since == 0 else (self.holds and since == 1)
        self._schedulers[scheduler] = (self._attempts, left_out)
        return left_out

    def _around_scaler_step(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            make = functools.partial(original, scaler, optimizer, *args, **kwargs)
            return make() if self._inside else self._attempt(make, None)

        return step

    def _around_unscale(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def unscale_(scaler: Any, optimizer: Any) -> None:
            if self._inside or not self._skips():
                original(scaler, optimizer)

        return unscale_

    def _around_update(self, original: Wrapped) -> Wrapped:
        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            if not self.holds:
                original(scaler, *args, **kwargs)

        return update


def _scaled(tensors: Any, grad_tensors: Any, factor: float) -> Any:
    """What backward starts from, times `factor`: the same as a loss times `factor`."""
    if isinstance(tensors, torch.Tensor):
        return _start(tensors, grad_tensors, factor)
    starts = [None] * len(tensors) if grad_tensors is None else grad_tensors
    return [_start(root, start, factor) for root, start in zip(tensors, starts, strict=True)]


def _start(root: Any, start: Any, factor: float) -> Any:
    if start is not None:
        only = start[0] if isinstance(start, list | tuple) else start
        return only * factor
    # Of anything but a single number torch itself refuses to start without a gradient.
    return torch.full_like(root, factor) if root.numel() == 1 else None


def _subclasses(kind: type) -> list[type]:
    below: list[type] = kind.__subclasses__()
    return [*below, *(each for child in below for each in _subclasses(child))]


# Which loader feeds training, how large its batches are, and how much larger than the script asked for.


class Feeding:
    """Installed outside of the loader seam, so that it sees what the script asked for and what it got.

    Frameworks build a loader anew around the same dataset (with a sampler for ranks, say): growth is kept by dataset.
    """

    def __init__(self, iterated: Callable[[], None] | None = None) -> None:
        self._told = iterated
        self._growth: dict[int, float] = {}  # by identity of the dataset
        self._latest: Callable[[], Any] = lambda: None  # the loader that was iterated last, while it lives

    def listen(self, fitter: Fitter, *, to_growth: bool) -> None:
        from torch.utils.data import DataLoader

        if to_growth:
            fitter.wrap(DataLoader, "__init__", self._around_init)
        fitter.wrap(DataLoader, "__iter__", self._around_iter)

    @property
    def batch_size(self) -> int | None:
        """Of the loader that was iterated last, which at a training step is the one that feeds it."""
        return _batch_size(self._latest())

    @property
    def growth(self) -> float:
        return self._growth.get(id(getattr(self._latest(), "dataset", None)), 1.0)

    def _around_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def built(loader: Any, dataset: Any, batch_size: Any = 1, *args: Any, **kwargs: Any) -> None:
            sampler = kwargs.get("batch_sampler", args[2] if len(args) > 2 else None)
            asked = batch_size if sampler is None else getattr(sampler, "batch_size", None)
            original(loader, dataset, batch_size, *args, **kwargs)
            boundary.attempt(self._built, loader, dataset, asked)

        return built

    def _built(self, loader: Any, dataset: Any, asked: Any) -> None:
        got = _batch_size(loader)
        if isinstance(asked, int) and asked and got and got != asked:
            self._growth.setdefault(id(dataset), got / asked)

    def _around_iter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def iterated(loader: Any) -> Any:
            self._latest = weakref.ref(loader)
            if self._told is not None:
                boundary.attempt(self._told)
            return original(loader)

        return iterated


def _batch_size(loader: Any) -> int | None:
    size = getattr(loader, "batch_size", None)
    if size is None:
        size = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    return size if isinstance(size, int) else None
