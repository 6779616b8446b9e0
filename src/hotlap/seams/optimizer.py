"""Offers each optimizer when its whole constructor has run, also the one of a subclass.

The constructor of every class of optimizers is wrapped, those that are there and those that come. It is the last one to
return if it is the one that the optimizer's own class has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.optim import Optimizer

from hotlap.ports.target import Optimizer as Target
from hotlap.ports.target import Seam
from hotlap.probe import boundary
from hotlap.seams.fitter import Fitter

_CONSTRUCTOR, _SUBCLASSED = "__init__", "__init_subclass__"


def install(fitter: Fitter) -> None:
    """Only where the plan has something for this seam: a plan without costs nothing."""
    if not fitter.wants(Seam.OPTIMIZER):
        return
    fitter.meets[Seam.OPTIMIZER].append(functools.partial(offer, fitter))
    for kind in _family(Optimizer):
        _listen(fitter, kind)
    fitter.wrap(Optimizer, _SUBCLASSED, functools.partial(_around_subclass, fitter))


def offer(fitter: Fitter, optimizer: Any) -> None:
    """Give the plan's settings for optimizers to one of them."""
    place = type(optimizer).__qualname__
    withdraw = functools.partial(_withdraw, fitter, place)
    fitter.offer(Seam.OPTIMIZER, Target(optimizer, fitter.patches, withdraw), place)


def _withdraw(fitter: Fitter, place: str, knob: str, reason: str) -> None:
    fitter.withdraw(knob, place, reason)


def _family(kind: type) -> Iterator[type]:
    yield kind
    children: list[type] = type.__subclasses__(kind)
    for child in children:
        yield from _family(child)


def _listen(fitter: Fitter, kind: type) -> None:
    if _CONSTRUCTOR in vars(kind):
        fitter.wrap(kind, _CONSTRUCTOR, functools.partial(_around_build, fitter, kind))


def _around_build(fitter: Fitter, kind: type, original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        last = next(each for each in type(self).__mro__ if _CONSTRUCTOR in vars(each))
        # A wrapper such as Accelerate's has no groups of its own: what it wraps was offered already.
        if last is kind and "param_groups" in vars(self):
            boundary.attempt(offer, fitter, self)

    return built


def _around_subclass(fitter: Fitter, _: Callable[..., None]) -> Any:
    def subclassed(cls: Any, /, **kwargs: Any) -> None:
        super(Optimizer, cls).__init_subclass__(**kwargs)  # torch's class has none of its own
        boundary.attempt(_listen, fitter, cls)

    return classmethod(subclassed)
