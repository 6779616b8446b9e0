"""Compile the model, so that neighbouring operators become one.

What it does
    Compiles the root module's call in place, as `module.compile()` does: state dicts keep their keys. Of a
    LightningModule its networks are compiled, not `self.log`. `default`, `reduce-overhead` and `max-autotune` are
    torch's modes, `dynamic` compiles for all sizes at once. What the compiler rejects, or compiles again and
    again, runs as it was: that very forward is redone.
When it helps
    Many small or pointwise operators: activations, norms, loops in Python.
What it costs
    Seconds to minutes at the first step, and again for sizes that it has not met.
Numerics
    Fused operators round in another order: the same model, not the same bits. With dropout other random masks are
    drawn, which only statistics can tell from a fault.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hotlap.facts.diagnosis import Cause
from hotlap.facts.host import Host
from hotlap.facts.summary import summarise
from hotlap.facts.timeline import Stage, Timeline
from hotlap.ports.knob import CannotActError, Knob, Numerics
from hotlap.ports.target import Model, Reach, Seam, Undo, together
from hotlap.ports.values import Choice

BACKEND = "HOTLAP_COMPILE_BACKEND"
"""Environment variable: another backend than inductor, where its compiler is missing or takes too long."""

_MOST_SAVED = 0.8  # of forward and backward: what launch-bound models have been seen to save
_OFF = "off"
_WRAPPERS = {"DistributedDataParallel": "module", "_FabricModule": "_forward_module"}


class Compile(Knob):
    id = "compile"
    relieves = frozenset({Cause.LAUNCH_BOUND, Cause.UNCOMPILED, Cause.RECOMPILING})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    values = Choice(
        ("default", "reduce-overhead", "max-autotune", "dynamic", _OFF),
        {"on": "default", "true": "default", "false": _OFF},
    )
    promise = (0.1, 0.4)

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        if host.compiler is None or host.python_headers is False:
            return ()
        if timeline.runtime.recompiles:
            return ("dynamic", _OFF)
        if timeline.model is None or timeline.model.compiled:
            return ()
        return ("default", "reduce-overhead") if timeline.on_cuda else ("default",)

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return _MOST_SAVED * summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        """Random masks fall on other elements."""
        return Numerics.STATISTICAL if _draws(target.module) else Numerics.ROUNDING

    def apply(self, target: Model, setting: str) -> Undo:
        if setting == _OFF:
            return lambda: None
        networks = _networks(target.module)
        for network in networks:
            _refuse(network)
        undo = [_compiled(network, target.reach, setting) for network in networks]
        return together(undo)


def _networks(module: Any) -> list[Any]:
    """What holds the operators: inside of wrappers, and below a LightningModule, whose own methods log."""
    kinds = [kind.__name__ for kind in type(module).__mro__]
    inner = next((_WRAPPERS[kind] for kind in kinds if kind in _WRAPPERS), None)
    if inner is not None:
        return _networks(getattr(module, inner))
    if "LightningModule" in kinds:
        return [each for each in module.children() if next(each.parameters(), None) is not None]
    return [module]


def _refuse(network: Any) -> None:
    kinds = {kind.__name__ for kind in type(network).__mro__}
    if "DataParallel" in kinds:
        raise CannotActError("DataParallel copies it at each call, and each copy would be compiled anew")
    if "OptimizedModule" in kinds or _is_compiled(vars(network).get("_compiled_call_impl")):
        raise CannotActError("the script compiles it already")
    if "ScriptModule" in kinds:
        raise CannotActError("it is a TorchScript module")


def _is_compiled(slot: Any) -> bool:
    """Whether what stands before a module's call is the compiler's, or something of hotlap's own around it."""
    if hasattr(slot, "compiles"):
        return bool(slot.compiles)
    return _is_compiled(slot.compiled) if hasattr(slot, "compiled") else slot is not None


def _options(setting: str) -> dict[str, Any]:
    options: dict[str, Any] = {"dynamic": True} if setting == "dynamic" else {}
    if os.environ.get(BACKEND):
        options["backend"] = os.environ[BACKEND]
    elif setting not in ("default", "dynamic"):
        options["mode"] = setting
    return options


def _compiled(network: Any, reach: Reach, setting: str) -> Undo:
    import torch
    from torch._dynamo.external_utils import wrap_inline

    # What `module.compile()` compiles, in a frame of its own: in a bare nn.Sequential every frame belongs to torch.nn,
    # and the compiler passes over those, without a word.
    compiled = torch.compile(wrap_inline(network._call_impl), **_options(setting))
    return reach.around(network, _Guarded(network, compiled, reach), innermost=True, compiles=True)


class _Guarded:
    """A compiled call that can do without. Where sizes are new, the state that a forward moves on is remembered."""

    def __init__(self, network: Any, compiled: Callable[..., Any], reach: Reach) -> None:
        from torch._dynamo import config
        from torch._dynamo.utils import counters

        self.network = network
        self.compiled: Callable[..., Any] | None = compiled
        self.reach = reach
        self.met: set[Any] = set()
        self.counted = counters["stats"]
        self.most = config.recompile_limit  # after as many the compiler gives up by itself
        self.compilations = 0

    def __call__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.compiled is None:
            return call(*args, **kwargs)
        graphs = self.counted["unique_graphs"]
        result = self._attempt(self.compiled, call, args, kwargs)
        self.compilations += self.counted["unique_graphs"] != graphs
        if self.compilations >= self.most:
            self._give_up(f"it was compiled anew at {self.compilations} calls")
        return result

    def _attempt(self, compiled: Callable[..., Any], call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        from torch._dynamo.exc import TorchDynamoException

        sizes = _sizes(args, kwargs)
        put_back = None if sizes in self.met else self.reach.remember(self.network)
        self.met.add(sizes)
        try:
            return compiled(*args, **kwargs)
        except (TorchDynamoException, ImportError, OSError) as fault:
            if put_back is not None:
                put_back()
            self._give_up(f"the compiler rejects it: {_first_line(fault)}")
            return call(*args, **kwargs)

    def _give_up(self, reason: str) -> None:
        if self.compiled is not None:
            self.compiled = None
            self.reach.step_down(Compile.id, _OFF, reason)


def _sizes(args: Any, kwargs: Any) -> tuple[Any, ...]:
    return tuple(getattr(each, "shape", None) for each in (*args, *kwargs.values()))


def _first_line(fault: BaseException) -> str:
    fault = getattr(fault, "inner_exception", fault)  # what the compiler's back end said
    lines = [line.strip() for line in str(fault).splitlines() if line.strip()]
    return f"{type(fault).__name__}: {lines[0] if lines else ''}"[:200]


def _draws(module: Any) -> bool:
    """Whether it drops activations at random."""
    return any("Dropout" in type(each).__name__ and getattr(each, "p", 0.0) > 0 for each in module.modules())
