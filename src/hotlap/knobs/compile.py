"""Compile the model, so that neighbouring operators become one.

What it does
    Compiles the root module's call in place, as `module.compile()` does: state dicts keep their keys. Of a
    LightningModule its networks are compiled, not `self.log`. `default`, `reduce-overhead` and `max-autotune` are
    torch's modes, `dynamic` compiles for all sizes at once, `frozen` does so for the parts that do not train, `off`
    calls what a script compiles itself without the compiler. What the compiler rejects, or compiles again and again,
    runs as it was: that very forward is redone.
When it helps
    Many small or pointwise operators: activations, norms, loops in Python. `frozen`: quantizers, teachers and frozen
    backbones, also beside a network that the compiler makes slower.
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

_OFF = "off"
_FROZEN, _MOST_PARTS = "frozen", 16  # each is compiled by itself, which takes seconds
_OVER_THE_SCRIPTS = ("dynamic", _OFF)  # what mends a script that compiles the same module again and again
_WRAPPERS = {"DistributedDataParallel": "module", "_FabricModule": "_forward_module"}


class Compile(Knob):
    id = "compile"
    relieves = frozenset({Cause.LAUNCH_BOUND, Cause.UNCOMPILED, Cause.RECOMPILING})
    seam = Seam.MODEL
    numerics = Numerics.ROUNDING
    live = True  # what torch has compiled for a module it finds again when the setting comes back
    values = Choice(
        ("default", "reduce-overhead", "max-autotune", "dynamic", _FROZEN, _OFF),
        {"on": "default", "true": "default", "false": _OFF},
    )
    promise = (0.1, 0.4)
    builds_s = 15.0  # of a small model on two cores; large ones take minutes

    def settings(self, host: Host, timeline: Timeline) -> tuple[str, ...]:
        if host.compiler is None or host.python_headers is False:
            return ()
        if timeline.runtime.recompiles:
            return ("dynamic", _OFF)
        if timeline.model is None or timeline.model.compiled:
            return ()
        parts = (_FROZEN,) if 0 < timeline.model.frozen_parts <= _MOST_PARTS else ()
        return (*parts, "default", "reduce-overhead") if timeline.on_cuda else (*parts, "default")

    def ceiling(self, timeline: Timeline, host: Host) -> float:
        return summarise(timeline).share(Stage.FORWARD, Stage.BACKWARD)

    def numerics_at(self, target: Any, setting: Any) -> Numerics:
        """Random masks fall on other elements."""
        parts = _networks(target.module, setting)
        return Numerics.STATISTICAL if any(map(_draws, parts)) else Numerics.ROUNDING

    def apply(self, target: Model, setting: str) -> Undo:
        networks = _networks(target.module, setting)
        for network in networks:
            _refuse(network, setting)
        return together([_applied(network, target.reach, setting) for network in networks])


def _networks(module: Any, setting: str) -> list[Any]:
    """What holds the operators: inside of wrappers, and below a LightningModule, whose own methods log."""
    if setting == _FROZEN:
        return _parts(module)
    kinds = [kind.__name__ for kind in type(module).__mro__]
    inner = next((_WRAPPERS[kind] for kind in kinds if kind in _WRAPPERS), None)
    if inner is not None:
        return _networks(getattr(module, inner), setting)
    if "LightningModule" in kinds:
        return [each for each in module.children() if next(each.parameters(), None) is not None]
    return [module]


def _parts(module: Any) -> list[Any]:
    from hotlap.probe.portrait import parts_that_do_not_train

    found = parts_that_do_not_train(module)
    if not found:
        raise CannotActError("all of its modules train")
    if len(found) > _MOST_PARTS:
        raise CannotActError(f"{len(found)} of its modules do not train, too many to compile each by itself")
    return found


def _refuse(network: Any, setting: str) -> None:
    kinds = {kind.__name__ for kind in type(network).__mro__}
    if "DataParallel" in kinds:
        raise CannotActError("DataParallel copies it at each call, and each copy would be compiled anew")
    if "ScriptModule" in kinds:
        raise CannotActError("it is a TorchScript module")
    compiled = _is_compiled(network)
    if compiled and setting not in _OVER_THE_SCRIPTS:
        raise CannotActError("the script compiles it already")
    if not compiled and setting == _OFF:
        raise CannotActError("the script does not compile it")


def _is_compiled(network: Any) -> bool:
    return hasattr(network, "_orig_mod") or _compiles(vars(network).get("_compiled_call_impl"))


def _compiles(slot: Any) -> bool:
    """Whether what stands before a module's call is the compiler's, or something of hotlap's own around it."""
    if hasattr(slot, "compiles"):
        return bool(slot.compiles)
    return _compiles(slot.compiled) if hasattr(slot, "compiled") else slot is not None


def _applied(network: Any, reach: Reach, setting: str) -> Undo:
    import torch
    from torch._dynamo.external_utils import wrap_inline

    plain = getattr(network, "_orig_mod", network)._call_impl
    if setting == _OFF:
        return reach.around(network, _instead(plain), innermost=True, compiles=False)
    # What `module.compile()` compiles, in a frame of its own: in a bare nn.Sequential every frame belongs to torch.nn,
    # and the compiler passes over those, without a word.
    compiled = torch.compile(wrap_inline(plain), **_options(setting))
    return reach.in_place_of(network, compiled, Compile.id, _OFF)


def _instead(plain: Callable[..., Any]) -> Callable[..., Any]:
    def called(_: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    return called


def _options(setting: str) -> dict[str, Any]:
    options: dict[str, Any] = {"dynamic": True} if setting in ("dynamic", _FROZEN) else {}
    if os.environ.get(BACKEND):
        options["backend"] = os.environ[BACKEND]
    elif setting not in ("default", "dynamic", _FROZEN):
        options["mode"] = setting
    return options


def _draws(module: Any) -> bool:
    """Whether it drops activations at random."""
    return any("Dropout" in type(each).__name__ and getattr(each, "p", 0.0) > 0 for each in module.modules())
