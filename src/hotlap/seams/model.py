"""Finds the root modules at their first training forward and offers them before it runs.

A root is a module with parameters that is called in training mode by no other module. They are looked for from the
moment that an optimizer is built (by then the compiler has read `Module.__call__`, which it compares by identity)
until every optimizer has stepped. While a root runs, and after the search, torch's own function is in its place.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.jit import _recursive
from torch.nn import Module

from hotlap.ports.target import Layer, Model, Seam, Undo
from hotlap.ports.unseen import unseen
from hotlap.probe import boundary
from hotlap.probe.accelerator import in_use
from hotlap.probe.taps.root import RootTap
from hotlap.seams.compute_ladder import ComputeFallbacks
from hotlap.seams.fitter import Fitter
from hotlap.seams.training import Training, layered

# Layers around the calls of one module. The compiler may trace through them, so they are as plain as can be.


SLOT = "_compiled_call_impl"  # what `Module.__call__` prefers; `Module.__getstate__` leaves it out of every checkpoint
_is_compiling = torch.compiler.is_compiling


@dataclass(eq=False)
class Entry:
    """A layer, whether the compiler meets it, and whether it is the compiler's or keeps it out."""

    layer: Layer
    traced: bool
    compiles: bool | None


class RootCall:
    """Stands in the module's slot and calls what would have been called, with layers around it.

    The module is held weakly: a layer must not keep a model alive that the script lets go. `compiles` tells
    the probe, which takes whatever stands in the slot for a compiled module.
    """

    def __init__(self, module: torch.nn.Module, before: Callable[..., Any] | None) -> None:
        self.module = weakref.ref(module)
        self.before = before
        self.inner: list[Entry] = []
        self.outer: list[Entry] = []
        self.call = self.when_traced = self.plain

    @property
    def compiles(self) -> bool:
        said = [each.compiles for each in (*self.inner, *self.outer) if each.compiles is not None]
        return said[-1] if said else self.before is not None

    @property
    def autocast(self) -> str | None:
        """The precision that a layer computes in, for the probe, which stands outside of it."""
        said = [getattr(each.layer, "autocast", None) for each in (*self.inner, *self.outer)]
        return next((each for each in said if each), None)

    @unseen
    def plain(self, *args: Any, **kwargs: Any) -> Any:
        module: Any = self.module()
        return (self.before or module._call_impl)(*args, **kwargs)

    @unseen
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self.when_traced if _is_compiling() else self.call)(*args, **kwargs)

    def put_together(self) -> None:
        layers = [*self.inner, *self.outer]
        self.call = layered(self.plain, [each.layer for each in layers])
        self.when_traced = layered(self.plain, [each.layer for each in layers if each.traced])

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copied module starts without layers."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Pickled by a module that writes its whole `__dict__`: as None, which is the slot's default."""
        return _nothing, ()


def around(
    module: torch.nn.Module,
    layer: Layer,
    *,
    innermost: bool = False,
    traced: bool = False,
    compiles: bool | None = None,
) -> Undo:
    """Put a layer around each call of a module, inside of the probe's tap where there is one."""
    call = root_call(module) or _placed(module)
    layers = call.inner if innermost else call.outer
    entry = Entry(unseen(layer), traced, compiles)
    layers.append(entry)
    call.put_together()
    return _undo(weakref.ref(call), weakref.ref(entry))


def _undo(held: weakref.ref[RootCall], held_entry: weakref.ref[Entry]) -> Undo:
    """Without a strong reference: whoever keeps it must not keep a model alive that the script lets go."""

    def undo() -> None:
        call, entry = held(), held_entry()
        if call is None or entry is None or entry not in (*call.inner, *call.outer):
            return
        (call.inner if entry in call.inner else call.outer).remove(entry)
        call.put_together()
        module = call.module()
        if module is not None and not call.inner and not call.outer:
            _taken_away(module, call)

    return undo


def root_call(module: torch.nn.Module) -> RootCall | None:
    """The layers of a module, also where the probe's tap stands around them."""
    found = module.__dict__.get(SLOT)
    found = found.compiled if isinstance(found, RootTap) else found
    return found if isinstance(found, RootCall) else None


def _placed(module: torch.nn.Module) -> RootCall:
    found = module.__dict__.get(SLOT)
    if isinstance(found, RootTap):
        found.compiled = call = RootCall(module, found.compiled)
    else:
        module.__dict__[SLOT] = call = RootCall(module, found)
    return call


def _taken_away(module: torch.nn.Module, call: RootCall) -> None:
    found = module.__dict__.get(SLOT)
    if isinstance(found, RootTap) and found.compiled is call:
        found.compiled = call.before
    elif found is call:
        if call.before is None:
            del module.__dict__[SLOT]
        else:
            module.__dict__[SLOT] = call.before


def _nothing() -> None:
    return None


_LAST_STEP = 5  # an optimizer that has not stepped by then is not waited for
_MOST_ROOTS = 64


def install(fitter: Fitter) -> None:
    """Only where the plan has something for models or changes numbers: a plan without costs the loop nothing."""
    ladder_wanted = ComputeFallbacks.is_wanted(fitter)
    if not ladder_wanted and not fitter.wants(Seam.MODEL):
        return
    training = Training()
    training.listen(fitter)
    ladder = ComputeFallbacks(fitter, training)
    if ladder_wanted:
        ladder.watch()
    if fitter.wants(Seam.MODEL):
        Roots(fitter, training, ladder).listen()


def offer(fitter: Fitter, module: Any, training: Training, ladder: ComputeFallbacks) -> None:
    """Give the plan's settings for models to one module."""
    target = target_of(fitter, module, training, ladder)
    target.autocasts = torch.is_autocast_enabled(next(module.parameters()).device.type)
    ladder.met(module, functools.partial(target_of, fitter, training=training, ladder=ladder))
    fitter.offer(Seam.MODEL, target, type(module).__qualname__)


def target_of(fitter: Fitter, module: Any, training: Training, ladder: ComputeFallbacks) -> Model:
    return Model(module, fitter.patches, SeamReach(fitter, training, ladder, module))


class SeamReach:
    """Implements ports.target.Reach for one root, which it does not keep alive."""

    around = staticmethod(around)

    def __init__(self, fitter: Fitter, training: Training, ladder: ComputeFallbacks, module: Any) -> None:
        self._fitter = fitter
        self._training = training
        self._ladder = ladder
        self._module = weakref.ref(module)
        self._place = type(module).__qualname__

    def in_place_of(self, module: Any, compiled: Callable[..., Any], knob: str, off: Any) -> Undo:
        give_up = functools.partial(self._ladder.step_down, knob, off)
        layer = CompiledCall(module, compiled, remember, give_up)
        return around(module, layer, innermost=True, compiles=True)

    def first_forward(self, module: Any, knob: str, off: Any) -> Undo:
        def give_up(reason: str) -> None:
            self._ladder.step_down(knob, off, f"its forward does not bear it: {reason}")

        return around(module, FirstForward(module, remember, give_up))

    def scale_gradients(self) -> Undo:
        module = self._module()
        return self._ladder.loss_scale.use([] if module is None else list(module.parameters()))

    def optimizers(self) -> list[Any]:
        return list(self._training.optimizers)

    def step_down(self, knob: str, after: Any, reason: str) -> None:
        self._ladder.step_down(knob, after, reason)

    def withdraw(self, knob: str, reason: str) -> None:
        self._fitter.withdraw(knob, self._place, reason)


class Roots:
    """The search. `Module.__call__` is only patched while it lasts and no root runs."""

    def __init__(self, fitter: Fitter, training: Training, ladder: ComputeFallbacks) -> None:
        self._fitter = fitter
        self._training = training
        self._ladder = ladder
        self._met: weakref.WeakSet[Module] = weakref.WeakSet()
        self._unpatch: Undo | None = None
        self._over = False

    def listen(self) -> None:
        self._fitter.meets[Seam.MODEL].append(self._look)
        self._training.built.append(self._begin)
        self._training.step_ends.append(self._step_made)
        self._training.backward.append(self._backward)
        self._fitter.wrap(Module, "_replicate_for_data_parallel", _around_replicate)
        if hasattr(_recursive, "infer_concrete_type_builder"):
            self._fitter.wrap(_recursive, "infer_concrete_type_builder", _around_scripting)

    def _begin(self) -> None:
        """Also for a second model, of a next fold, say."""
        self._over = False
        self._resume()

    def _resume(self) -> None:
        if self._unpatch is None and not self._over:
            self._unpatch = self._fitter.wrap(Module, "__call__", self._around_call)

    def _pause(self) -> None:
        if self._unpatch is not None:
            self._unpatch()
            self._unpatch = None

    def _backward(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """A script that steps by hand builds no optimizer: its root is found at the second forward."""
        result = call(*args, **kwargs)
        if not self._training.optimizers and not self._met:
            self._begin()
        elif self._met:
            self._training.backward.remove(self._backward)
        return result

    def _step_made(self, _: Any) -> None:
        training = self._training
        if not self._over and (
            training.steps >= _LAST_STEP or all(map(training.stepped, training.optimizers))
        ):
            self._over = True
            self._pause()

    def _around_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def called(module: Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            self._pause()
            try:
                boundary.attempt(self._look, module)
                return original(module, *args, **kwargs)
            finally:
                self._resume()

        return called

    def _look(self, module: Module) -> None:
        trains = module.training and torch.is_grad_enabled() and module not in self._met
        if self._training.in_backward:
            return  # a checkpointed part that is computed again is no root
        if trains and len(self._met) < _MOST_ROOTS and next(module.parameters(), None) is not None:
            self._met.add(module)
            offer(self._fitter, module, self._training, self._ladder)


def remember(module: Module) -> Undo:
    """The state that a forward moves on: random number generators and buffers."""
    cpu = torch.get_rng_state()
    device = in_use()
    rewind = device.random_states() if device is not None else None
    buffers = [(each, each.detach().clone()) for each in module.buffers()]

    def put_back() -> None:
        torch.set_rng_state(cpu)
        if rewind is not None:
            rewind()
        with torch.no_grad():
            for live, before in buffers:
                live.copy_(before)

    return put_back


def _around_replicate(original: Callable[..., Any]) -> Callable[..., Any]:
    """A replica copies the whole `__dict__`; layers in it would call the original module instead."""

    @functools.wraps(original)
    def replicated(self: Module) -> Any:
        replica = original(self)
        layers = root_call(replica)
        if layers is not None:
            replica.__dict__[SLOT] = layers.before
        return replica

    return replicated


def _around_scripting(original: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.jit.script` reads every attribute of a module and refuses those that it cannot type."""

    @functools.wraps(original)
    def read(nn_module: Module, *args: Any, **kwargs: Any) -> Any:
        layers = root_call(nn_module)
        if layers is None or layers.before is not None:
            return original(nn_module, *args, **kwargs)
        held = nn_module.__dict__.pop(SLOT)
        try:
            return original(nn_module, *args, **kwargs)
        finally:
            nn_module.__dict__[SLOT] = held

    return read


# The first forward of a root under a setting that not every model bears.


class FirstForward:
    """A layer: redone without the setting where the first forward raises. What it moved on is put back before."""

    def __init__(
        self, module: Module, remember: Callable[[Module], Undo], give_up: Callable[[str], None]
    ) -> None:
        self._module = weakref.ref(module)
        self._remember = remember
        self._give_up = give_up
        self._passed = False

    @unseen
    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        module = self._module()
        if self._passed or module is None:
            return call(*args, **kwargs)
        put_back = self._remember(module)
        self._passed = True
        try:
            return call(*args, **kwargs)
        except RuntimeError as fault:
            put_back()
            reason = str(fault).strip().partition("\n")[0][:160]
            self._give_up(reason)
            return call(*args, **kwargs)


# A compiled call that can do without the compiler: what fails is redone, what is compiled ever again is not.


class CompiledCall:
    """A layer in place of a module's call. Where sizes are new, the state that a forward moves on is remembered."""

    def __init__(
        self,
        module: Any,
        compiled: Callable[..., Any],
        remember: Callable[[Any], Undo],
        give_up: Callable[[str], None],
    ) -> None:
        from torch._dynamo import config
        from torch._dynamo.utils import counters

        self._module = weakref.ref(module)
        self._compiled: Callable[..., Any] | None = compiled
        self._remember = remember
        self._give_up = give_up
        self._met: set[Any] = set()
        self._counted = counters["stats"]
        self._most = config.recompile_limit  # after as many the compiler gives up by itself
        self._compilations = 0

    @unseen
    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._compiled is None:
            return call(*args, **kwargs)
        graphs = self._counted["unique_graphs"]
        result = self._attempt(self._compiled, call, args, kwargs)
        self._compilations += self._counted["unique_graphs"] != graphs
        if self._compilations >= self._most:
            self._end(f"it was compiled anew at {self._compilations} calls")
        return result

    @unseen
    def _attempt(self, compiled: Callable[..., Any], call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        sizes = tuple(getattr(each, "shape", None) for each in (*args, *kwargs.values()))
        put_back = None if sizes in self._met else self._remember(self._module())
        self._met.add(sizes)
        try:
            return compiled(*args, **kwargs)
        except (TorchDynamoException, ImportError, OSError) as fault:
            if put_back is not None:
                put_back()
            self._end(f"the compiler rejects it: {_first_line(fault)}")
            return call(*args, **kwargs)

    def _end(self, reason: str) -> None:
        if self._compiled is not None:
            self._compiled = None
            self._give_up(reason)


def _first_line(fault: BaseException) -> str:
    fault = getattr(fault, "inner_exception", fault)  # what the compiler's back end said
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[0] if lines else ''}"[:200]
