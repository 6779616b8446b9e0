"""The probe's state in one process: its ring, its taps, its facts, and how it comes and goes.

There is one session per process. A fork gives the child a session of its own, with files of its own.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import util
from pathlib import Path
from threading import get_ident
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from hotlap.facts import private
from hotlap.facts.job import masked
from hotlap.facts.timeline import Stage
from hotlap.ports.unseen import unseen
from hotlap.probe import boundary, marked, marks
from hotlap.probe.control import Control
from hotlap.probe.feed import Feed
from hotlap.probe.marks import Kind
from hotlap.probe.portrait import runtime_portrait
from hotlap.probe.ring import Ring
from hotlap.probe.sampler import Sampler

now = time.perf_counter_ns

_KIND_OF_STAGE = {
    Stage.DATA: Kind.DATA,
    Stage.TRANSFER: Kind.TRANSFER,
    Stage.FORWARD: Kind.FORWARD,
    Stage.BACKWARD: Kind.BACKWARD,
    Stage.OPTIMIZER: Kind.OPTIMIZER,
    Stage.LOG: Kind.LOG,
    Stage.VALIDATE: Kind.VALIDATE,
    Stage.CHECKPOINT: Kind.CHECKPOINT,
}

_LASTING = (Stage.LOG, Stage.CHECKPOINT)  # what a call of these leaves behind outlives the process

_OF_ONE_PROCESS = ("ended_at", "window_done", "window_end", "role")


class Session:
    """Listens in this process and writes to `<folder>/<pid>.*`."""

    def __init__(self, folder: Path, origin: int) -> None:
        self.folder = folder
        self.origin = origin
        self.attached_at = now() - origin
        self.facts: dict[str, Any] = {}
        self.portraits: list[
            Callable[[], None]
        ] = []  # called before the facts are written, to bring them up to date
        self.first_batch: list[Callable[[], None]] = []  # called once, before the first batch or step
        # Called before and after each optimizer step, and before each backward pass, until they return False: what
        # only looks at the first steps costs the others nothing.
        self.step_begins: list[Callable[[], bool]] = []
        self.step_ends: list[Callable[[], bool]] = []
        self.backward_begins: list[Callable[[Any], bool]] = []
        self.is_worker = False  # of a loader
        self.endings: list[Callable[[], None]] = []  # called when the process is about to end by itself
        self.compile_begins: list[Callable[[], None]] = []  # called before the compiler traces anything
        self.control = Control(folder)
        self.accumulation = Accumulation()
        self.eval_begins: list[Callable[[], Any]] = []  # called where the script calls model.eval()
        self.after_phases: list[Callable[[], Any]] = []  # called when all phases after the window are over
        self.experimenting = False  # what is trained from here on is thrown away
        self.optimizers: Callable[[], list[Any]] = list  # those that have stepped and are alive
        self.device: Any = None  # a DeviceClock, once the script uses a device
        self.feed: Feed | None = None  # where phases follow the window: which loaders feed training
        self._frozen: dict[str, Any] = {}
        self._writing = threading.Lock()
        self._undo: list[Callable[[], None]] = []
        self._pausable: list[tuple[Any, str, Any, Any]] = []
        self.detached = False
        self.pid = os.getpid()
        # Marks of two threads would nest into each other; only the thread that trains is on the critical path.
        self.thread = get_ident()
        self.ring = Ring(folder / f"{self.pid}.marks")
        self.append = self.ring.append
        self.sampler = Sampler(folder / f"{self.pid}.samples", origin, self.ring, self.write_facts)

    # -- marks -------------------------------------------------------------------------------------------------

    def timed(self, kind: Kind) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A wrapper that marks every call of the training thread as `kind`."""
        return functools.partial(marked.around, self, kind)

    def mark(self, code: int) -> None:
        """A mark at this moment."""
        self.append((now() - self.origin) << 8 | code)

    def fact(self, value: int, code: int) -> None:
        """A fact about the mark before."""
        self.append(value << 8 | code)

    def train_here(self) -> None:
        """The calling thread makes a step: it is the one on the critical path."""
        if self.thread != get_ident():
            self.thread = get_ident()
            if not self.sampler.idle:
                self.sampler.start(self.thread)

    def start(self) -> None:
        """The script begins to train, or goes on after a fork."""
        self.sampler.start(self.thread)
        for listener in self.first_batch:
            boundary.attempt(listener)
        self.first_batch.clear()

    # -- the Stager that integrations see ------------------------------------------------------------------------

    def stage(self, owner: Any, name: str, stage: Stage, *, lasting: bool = True) -> None:
        """From now on, time spent in `owner.name(...)` counts as `stage`; a missing name is passed over."""
        if hasattr(owner, name):
            around = self.timed(_KIND_OF_STAGE[stage])
            self.wrap(owner, name, self.held_back(around) if lasting and stage in _LASTING else around)

    def held_back(self, around: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """As `around`, but while experiments run the call is left out: what they train is never saved or logged.

        The caller may go on with what is returned, such as the path of what was saved: it gets the last one again.
        """

        def wrapper(original: Callable[..., Any]) -> Callable[..., Any]:
            call, last = around(original), None

            @functools.wraps(original)
            def unless_held(*args: Any, **kwargs: Any) -> Any:
                nonlocal last
                if not self.experimenting:
                    last = call(*args, **kwargs)
                return last

            return unless_held

        return wrapper

    def note(self, key: str, value: Any) -> None:
        self.facts[key] = value

    def wrap(
        self, owner: Any, name: str, around: Callable[..., Any], *, while_compiling: bool = True
    ) -> None:
        """Replace `owner.name` by `around(original)`; with `while_compiling` False the original is back meanwhile."""
        own = name in vars(owner)
        original = vars(owner)[name] if own else getattr(owner, name)
        plain = original.__func__ if isinstance(original, staticmethod | classmethod) else original
        replacement: Any = unseen(around(plain))
        if isinstance(original, staticmethod | classmethod):
            replacement = type(original)(replacement)
        setattr(owner, name, replacement)
        self._undo.append(lambda: setattr(owner, name, original) if own else delattr(owner, name))
        if not while_compiling:
            self._pausable.append((owner, name, original if own else None, replacement))

    def on_detach(self, undo: Callable[[], Any]) -> None:
        self._undo.append(undo)

    def pause(self) -> None:
        """Put the originals back where the compiler must not meet a tap."""
        for owner, name, original, _ in reversed(self._pausable):  # of two on one name the outer one first
            setattr(owner, name, original) if original is not None else delattr(owner, name)

    def resume(self) -> None:
        for owner, name, _, replacement in self._pausable:
            setattr(owner, name, replacement)

    def withdraw(self, owner: Any, name: str) -> None:
        """Take one pausable tap away for good."""
        self._pausable = [tap for tap in self._pausable if not (tap[0] is owner and tap[1] == name)]

    # -- life ----------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """The window is measured: what is known of it stays as it is now, whatever is counted from here on."""
        self._frozen = json.loads(json.dumps(self._described(), default=str))

    @boundary.contained
    def write_facts(self) -> None:
        with self._writing:  # the sampler's thread writes now and then, this one at the end
            facts = {**self.facts, **self._frozen} if self._frozen else self._described()
            if not self.ring.count:
                return  # a process that never trained leaves nothing behind
            draft = self.folder / f".{self.pid}.json"
            private.write(draft, json.dumps({**facts, "faults": boundary.faults}, default=str).encode())
            draft.replace(self.folder / f"{self.pid}.json")

    def _described(self) -> dict[str, Any]:
        for portrait in self.portraits:
            boundary.attempt(portrait)
        return {
            "pid": self.pid,
            "parent": os.getppid(),
            "argv": masked(sys.argv),
            "rank": int(os.environ.get("RANK", "0") or 0),
            "world": int(os.environ.get("WORLD_SIZE", "1") or 1),
            "attached_at": self.attached_at,
            "marks": self.ring.count,
            "sampler": self.sampler.facts(),
            **self.facts,
        }

    @boundary.contained
    def describe_runtime(self) -> None:
        self.facts["runtime"] = runtime = runtime_portrait()
        if (runtime["world"] or 1) > 1:
            self.fact(runtime["world"], marks.WORLD)

    @boundary.contained
    def end(self) -> None:
        """The process is about to end by itself."""
        if os.getpid() == self.pid and not self.detached:
            for ending in self.endings:
                boundary.attempt(ending)
            self.facts["ended_at"] = now() - self.origin
            self.sampler.stop()
            self.ring.close()
            self.write_facts()

    def detach(self) -> None:
        """Take every tap away again."""
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()
        self._pausable.clear()
        self.end()
        self.detached = True

    @boundary.contained
    def before_fork(self) -> None:
        # A forked child inherits no threads but their locks; and Python warns of forks beside threads.
        self.sampler.stop()

    @boundary.contained
    def after_fork_in_child(self) -> None:
        if self.detached:
            return
        self.pid = os.getpid()
        self.thread = get_ident()
        self.facts = {key: value for key, value in self.facts.items() if key not in _OF_ONE_PROCESS}
        self._frozen = {}
        # Children of multiprocessing leave by os._exit: no atexit, but finalizers that are set after the fork.
        util.register_after_fork(self, _end_with_process)
        self._writing = threading.Lock()
        boundary.faults.clear()
        self.ring.reopen(self.folder / f"{self.pid}.marks")
        self.sampler.reopen(self.folder / f"{self.pid}.samples")


def ask(listeners: list[Callable[..., bool]], *args: Any) -> None:
    """Call each, and keep those that want to be called again."""
    listeners[:] = [each for each in [*listeners] if boundary.attempt(each, *args)]


def _end_with_process(session: Session) -> None:
    util.Finalize(None, session.end, exitpriority=-100)  # after those of the script


# Whether backward passes without an optimizer's step are parts of one long step, or a script updates by hand.
#
# Gradients may be accumulated over hundreds of batches. Meanwhile no parameter is written; torch counts
# writes, so that one look at a parameter of each optimizer tells. Only asked until the first step of an
# optimizer.


_MOST = 4096  # backward passes: an optimizer that waits for so long is one that is never used


class Accumulation:
    """Knows the optimizers that were built."""

    def __init__(self) -> None:
        self._optimizers: list[weakref.ref[Optimizer]] = []
        self._versions: list[int] = []
        self._passes = 0

    def built(self, optimizer: Optimizer) -> None:
        self._optimizers.append(weakref.ref(optimizer))

    def goes_on(self) -> bool:
        """Asked after each backward pass: whether it continues the step of the one before."""
        self._passes += 1
        before, self._versions = self._versions, self._look()
        return bool(before) and before == self._versions and self._passes <= _MOST

    def alive(self) -> list[Optimizer]:
        """Those that were built and are still there."""
        return [optimizer for each in self._optimizers if (optimizer := each()) is not None]

    def first_parameters(self) -> set[int]:
        """Identities of the first parameter that each optimizer trains."""
        return {id(each) for each in self._firsts()}

    def _look(self) -> list[int]:
        return [each._version for each in self._firsts()]

    def _firsts(self) -> list[Tensor]:
        return [first for each in self.alive() if (first := _first_of(each)) is not None]


def _first_of(optimizer: Optimizer) -> Tensor | None:
    parameters = (each for group in optimizer.param_groups for each in group["params"])
    return next((each for each in parameters if each.requires_grad), None)
