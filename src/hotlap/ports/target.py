"""What a knob is given to act on: one kind of target for each seam."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from hotlap.facts.timeline import SourceLine


class Seam(StrEnum):
    """A place in a running script where hotlap may act."""

    PROCESS = "process"
    LOADER = "loader"
    MODEL = "model"
    OPTIMIZER = "optimizer"
    STEP = "step"
    DISTRIBUTED = "distributed"
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

    Questions are answered when first asked, by making batches in a process of their own. `draws`: why items would come
    out differently in a worker (they draw random numbers, or count their calls), `lazy`: why the sampler would when it
    is asked earlier, both empty where nothing shows it; `unproved`: why that is not certain; `shards`: whether an
    IterableDataset shares its items out among workers; `lengths(n)`: of the first n items, of all with 0, or None
    where they have none. `training` is None where nothing shows what the loader is for. `after` is called with the
    loader once it is built, `setups` in each of its workers. With `asking` it only matters whether a knob could act.
    `lower(knob, reason)` is for a knob whose class turns out to be audited while the script runs.
    """

    arguments: dict[str, Any]
    place: SourceLine | None = None
    draws: Callable[[], str] = lambda: ""
    lazy: Callable[[], str] = lambda: ""
    unproved: Callable[[], str] = lambda: ""
    shards: Callable[[], bool] = lambda: False
    lengths: Callable[[int], Sequence[int] | None] = lambda _: None
    iterable: bool = False
    training: bool | None = None
    asking: bool = False
    lower: Callable[[str, str], None] = lambda *_: None
    after: list[Callable[[Any], None]] = field(default_factory=list)
    setups: list[Callable[[], None]] = field(default_factory=list)
    context: dict[str, Any] = field(default_factory=dict)  # what other knobs of this loader should know

    def change(self, **arguments: Any) -> Undo:
        """Replace arguments; the undo puts back what stood there."""
        before = {name: self.arguments[name] for name in arguments}
        self.arguments.update(arguments)
        return lambda: self.arguments.update(before)


def together(undos: Sequence[Undo]) -> Undo:
    """One undo of several, the newest first."""

    def undo() -> None:
        for each in reversed(undos):
            each()

    return undo


Layer = Callable[..., Any]
"""`layer(call, *args, **kwargs)`: stands around a call and decides what becomes of it."""


class Reach(Protocol):
    """What the model seam does for a knob, so that nothing of it ends up in state dicts, pickles or copies."""

    def around(
        self,
        module: Any,
        layer: Layer,
        *,
        innermost: bool = False,
        traced: bool = False,
        compiles: bool | None = None,
    ) -> Undo:
        """Put a layer around each call of a module; the compiler meets it only where it is `traced`.

        `compiles` says whether what it calls is compiled, where the layer decides that.
        """

    def in_place_of(self, module: Any, compiled: Callable[..., Any], knob: str, off: Any) -> Undo:
        """Call this instead of a module; where the compiler fails or never comes to an end, step down to `off`."""

    def first_forward(self, module: Any, knob: str, off: Any) -> Undo:
        """Where the next forward raises, put back what it moved on, step down to `off`, and make it once more."""

    def scale_gradients(self) -> Undo:
        """Scale losses up and gradients down again, and leave out steps whose gradients are not finite."""

    def optimizers(self) -> list[Any]:
        """The optimizers that are built and alive."""

    def step_down(self, knob: str, after: Any, reason: str) -> None:
        """A setting does not work: take it back everywhere and go on with a lesser one."""

    def withdraw(self, knob: str, reason: str) -> None:
        """It turned out at the first use that the knob cannot act here; it has taken itself back."""


@dataclass
class Model:
    """A root module at its first training forward, before it runs; `patches` to wrap functions of torch.

    `autocasts`: the script has entered autocast there. Between two steps, where a knob may be applied too, that does
    not show.
    """

    module: Any
    patches: Patches
    reach: Reach
    autocasts: bool = False


@dataclass
class Optimizer:
    """An optimizer right after it was built. `withdraw(knob, reason)`: as `Reach.withdraw`."""

    optimizer: Any
    patches: Patches
    withdraw: Callable[[str, str], None] = lambda *_: None


@dataclass
class Process:
    """The process, once torch is imported. A knob may patch functions of torch for all of the run."""

    patches: Patches


class Step(Protocol):
    """The loop of a script without a trainer, as far as it can be steered from outside. See seams/step.py."""

    patches: Patches
    optimizers: Collection[Any]  # those of the script that are alive
    growth: dict[str, float]  # by knob: how many times as large it made the batch of one optimizer step
    holds: bool  # gradients of steps that were left out wait for one that is made

    def batch_growth(self) -> float:
        """How many times as large the batch of one optimizer step is as the script's own, all knobs together."""

    def withdraw(self, knob: str, reason: str) -> None:
        """A knob found out, while the script runs, that it cannot act: it is taken back, and the reason told."""

    def skip_optimizer(self, when: Callable[[], bool]) -> Undo:
        """Leave out `optimizer.step()`, clipping and `scheduler.step()`, and the `zero_grad()` that follows.

        `when()` is asked once for each step that the script attempts.
        """

    def scale_loss(self, factor: Callable[[], float]) -> Undo:
        """Multiply the loss before each backward."""

    def each_step(self, act: Callable[[], None]) -> Undo:
        """Call back after each real optimizer step."""


@dataclass
class Distributed:
    """A DistributedDataParallel about to be built. A knob changes `arguments`, the whole signature by name."""

    arguments: dict[str, Any]


@dataclass
class Conversion:
    """BatchNorm about to be replaced by SyncBatchNorm, at the same seam; with `leave_out` the module stays as it is."""

    module: Any
    ranks: int
    leave_out: bool = False


@dataclass
class Trainer:
    """A framework's trainer about to be built: `takes` are the knobs that it has an option of its own for."""

    framework: str
    takes: Mapping[str, Callable[[Any], Undo]]
    growth: dict[str, float] = field(default_factory=dict)  # see Step.growth; filled in as settings are taken
