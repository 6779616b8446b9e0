"""What a knob is given to act on: one kind of target for each seam."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from hotlap.facts.timeline import Place


class Seam(StrEnum):
    """A place in a running script where hotlap may act."""

    PROCESS = "process"
    LOADER = "loader"
    MODEL = "model"
    OPTIMIZER = "optimizer"
    STEP = "step"
    TRAINER = "trainer"


Undo = Callable[[], None]
Around = Callable[[Callable[..., Any]], Callable[..., Any]]


class Patches(Protocol):
    """Replaces functions, and puts them back when asked."""

    def wrap(self, owner: Any, name: str, around: Around) -> Undo:
        """Replace `owner.name` by `around(original)`."""


@dataclass
class Loader:
    """A DataLoader about to be built. A knob changes `arguments`, the whole signature by name.

    `draws` says whether an item draws random numbers: found out by fetching samples when first asked.
    """

    arguments: dict[str, Any]
    place: Place | None = None
    draws: Callable[[], bool] = lambda: False
    iterable: bool = False
    context: dict[str, Any] = field(default_factory=dict)  # what other knobs of this loader should know


@dataclass
class Model:
    """A root module at its first training forward, before it runs; `patches` to wrap its methods."""

    module: Any
    patches: Patches


@dataclass
class Optimizer:
    """An optimizer right after it was built."""

    optimizer: Any
    patches: Patches


@dataclass
class Process:
    """The process, once torch is imported. A knob may patch functions of torch for all of the run."""

    patches: Patches


class Step(Protocol):
    """The loop of a script without a trainer, as far as it can be steered from outside. See seams/step.py."""

    patches: Patches

    def skip_optimizer(self, when: Callable[[], bool]) -> Undo:
        """Leave out `optimizer.step()`, `zero_grad()`, clipping and `scheduler.step()` while `when()` is true."""

    def scale_loss(self, factor: Callable[[], float]) -> Undo:
        """Multiply the loss before each backward."""

    def each_step(self, act: Callable[[], None]) -> Undo:
        """Call back after each real optimizer step."""


@dataclass
class Trainer:
    """A framework's trainer about to be built: `takes` are the knobs that it has an option of its own for."""

    framework: str
    takes: Mapping[str, Callable[[Any], Undo]]
